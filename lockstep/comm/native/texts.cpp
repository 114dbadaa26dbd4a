#include "lockstep/comm/native/texts.h"

#include <cstdint>
#include <numeric>

namespace lockstep {

std::vector<std::string> exchange_texts(Communicator& communicator, const std::string& mine) {
  const auto n = static_cast<std::size_t>(communicator.size());
  const std::vector<std::int64_t> length = {static_cast<std::int64_t>(mine.size())};
  std::vector<std::int64_t> lengths(n);
  communicator.all_gather(length, lengths);
  std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::string all(
      static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})),
      '\0');
  communicator.run(all_gather_v(ConstData(mine.data(), mine.size(), DType::kU8),
                                Data(all.data(), all.size(), DType::kU8), counts));
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (std::size_t count : counts) {
    texts.push_back(all.substr(at, count));
    at += count;
  }
  return texts;
}

}  // namespace lockstep
