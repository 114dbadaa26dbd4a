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

// On the CPU by the calling thread, which need not be that of the operations.
void add(Ops& ops, const Tensor& to, const Tensor& from) {
  if (to.elements() == 0) return;
  if (to.device() != Device{}) return ops.run(ops::Add{.a = to, .b = from, .y = to});
  const auto sums = to.as<float>();
  const auto values = from.as<const float>();
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

}  // namespace

TreeSum::TreeSum(Ops& ops, Device device, std::size_t elements, std::int64_t most_rows)
    : ops_(&ops) {
  for (std::size_t level = 0; level < levels_for(most_rows); ++level) {
    levels_.emplace_back(elements * sizeof(float), device);
  }
  elements_ = static_cast<std::int64_t>(elements);
}

std::size_t TreeSum::bytes(std::size_t elements, std::int64_t most_rows) {
  return levels_for(most_rows) * elements * sizeof(float);
}

Tensor TreeSum::level(std::size_t index) const {
  return levels_.at(index).tensor(DType::kF32, {elements_});
}

void TreeSum::keep(const Tensor& buffer, std::int64_t index) {
  std::size_t at = 0;
  for (; is_kept(index, at); ++at) add(*ops_, buffer, level(at));
  ops_->in_order([&] { copy(level(at), buffer); });
}

void TreeSum::finish(const Tensor& part, std::size_t first, std::int64_t index) const {
  for (std::size_t at = 0; at < levels_.size(); ++at) {
    if (!is_kept(index, at)) continue;
    add(*ops_, part,
        level(at).slice(static_cast<std::int64_t>(first),
                        static_cast<std::int64_t>(part.elements())));
  }
}

}  // namespace lockstep::parallel
