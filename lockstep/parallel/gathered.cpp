#include "lockstep/parallel/gathered.h"

#include <cstdint>
#include <numeric>

namespace lockstep::parallel {

std::vector<std::string> gathered_texts(Communicator& world, std::string_view mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  const std::vector<std::int64_t> lengths = gathered<std::int64_t>(world, std::span(&length, 1));
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  world.run(all_gather_v(ConstData(mine.data(), mine.size(), DType::kU8),
                         Data(all.data(), all.size(), DType::kU8), counts));
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    texts.push_back(all.substr(at, count));
    at += count;
  }
  return texts;
}

}  // namespace lockstep::parallel
