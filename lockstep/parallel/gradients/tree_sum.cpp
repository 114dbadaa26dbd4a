#include "lockstep/parallel/gradients/tree_sum.h"

#include <algorithm>
#include <bit>

namespace lockstep::parallel {
namespace {

std::size_t levels_for(std::int64_t buffers) {
  return static_cast<std::size_t>(
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(buffers, 1)) - 1));
}

bool is_kept(std::int64_t index, std::size_t level) { return (index >> level & 1) != 0; }

void add(std::span<float> to, const float* from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

}  // namespace

TreeSum::TreeSum(std::size_t elements, std::int64_t most_rows)
    : levels_(levels_for(most_rows), std::vector<float>(elements)) {}

std::size_t TreeSum::bytes(std::size_t elements, std::int64_t most_rows) {
  return levels_for(most_rows) * elements * sizeof(float);
}

void TreeSum::keep(std::span<float> buffer, std::int64_t index) {
  std::size_t level = 0;
  for (; is_kept(index, level); ++level) add(buffer, levels_[level].data());
  std::copy(buffer.begin(), buffer.end(), levels_.at(level).begin());
}

void TreeSum::finish(std::span<float> part, std::size_t first, std::int64_t index) const {
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    if (is_kept(index, level)) add(part, levels_[level].data() + first);
  }
}

}  // namespace lockstep::parallel
