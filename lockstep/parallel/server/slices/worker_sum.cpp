#include "lockstep/parallel/server/slices/worker_sum.h"

#include <algorithm>
#include <array>

#include "lockstep/comm/reduce/combine.h"
#include "lockstep/parallel/compression/convert.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kAtATime = 4096;  // elements: sums in between stay in the nearest cache

using Inputs = std::span<const std::byte* const>;

void add(const std::byte* left, const std::byte* right, std::span<float> sum) {
  const std::byte* const inputs[] = {left, right};
  std::byte* const outputs[] = {reinterpret_cast<std::byte*>(sum.data())};
  combine(inputs, outputs, sum.size(), DType::kF32, ReduceOp::kSum);
}

// Of the elements from `first` on; at most kAtATime.
void sum_part(Inputs inputs, DType dtype, std::size_t first, std::span<float> sum) {
  const auto at = [&](const std::byte* input) { return input + first * size_of(dtype); };
  if (inputs.size() == 1) return widen(ConstData(at(inputs[0]), sum.size(), dtype), sum);
  if (inputs.size() == 2 && dtype == DType::kF32) return add(at(inputs[0]), at(inputs[1]), sum);
  const std::size_t left = (inputs.size() + 1) / 2;
  std::array<float, kAtATime> workspace;
  const std::span<float> right = std::span(workspace).first(sum.size());
  sum_part(inputs.subspan(left), dtype, first, right);
  sum_part(inputs.first(left), dtype, first, sum);
  add(reinterpret_cast<const std::byte*>(sum.data()),
      reinterpret_cast<const std::byte*>(right.data()), sum);
}

}  // namespace

void sum_of_workers(Inputs inputs, DType dtype, std::span<float> sum) {
  for (std::size_t first = 0; first < sum.size(); first += kAtATime) {
    sum_part(inputs, dtype, first, sum.subspan(first, std::min(kAtATime, sum.size() - first)));
  }
}

}  // namespace lockstep::parallel
