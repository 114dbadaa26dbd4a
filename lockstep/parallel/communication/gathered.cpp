#include "lockstep/parallel/communication/gathered.h"

#include <cstdint>
#include <numeric>
#include <span>

namespace lockstep::parallel {
namespace {

std::vector<std::size_t> lengths_of_all(Communicator& world, std::string_view mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  const std::vector<std::int64_t> lengths = gathered<std::int64_t>(world, std::span(&length, 1));
  return {lengths.begin(), lengths.end()};
}

std::string buffer_for(std::span<const std::size_t> lengths) {
  return std::string(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
}

std::vector<std::string> cut(const std::string& all, std::span<const std::size_t> lengths) {
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const std::size_t length : lengths) {
    texts.push_back(all.substr(at, length));
    at += length;
  }
  return texts;
}

ConstData bytes_of(std::string_view text) { return {text.data(), text.size(), DType::kU8}; }

}  // namespace

std::vector<std::string> gathered_texts(Communicator& world, std::string_view mine) {
  const std::vector<std::size_t> lengths = lengths_of_all(world, mine);
  std::string all = buffer_for(lengths);
  world.run(all_gather_v(bytes_of(mine), Data(all.data(), all.size(), DType::kU8), lengths));
  return cut(all, lengths);
}

std::vector<std::string> gathered_texts_at(int root, Communicator& world, std::string_view mine) {
  const std::vector<std::size_t> lengths = lengths_of_all(world, mine);
  const bool here = world.rank() == root;
  std::string all = here ? buffer_for(lengths) : std::string();
  world.run(gather_v(bytes_of(mine), here ? Data(all.data(), all.size(), DType::kU8) : Data(),
                     lengths, root));
  return here ? cut(all, lengths) : std::vector<std::string>();
}

}  // namespace lockstep::parallel
