#include "lockstep/parallel/server/worker_sum.h"

#include "lockstep/comm/reduce/combine.h"

namespace lockstep::parallel {

void sum_of_workers(std::span<float* const> inputs, std::size_t count) {
  if (inputs.size() < 2) return;
  const std::size_t left = (inputs.size() + 1) / 2;
  sum_of_workers(inputs.first(left), count);
  sum_of_workers(inputs.subspan(left), count);
  const auto bytes = [](float* values) { return reinterpret_cast<std::byte*>(values); };
  const std::byte* const halves[] = {bytes(inputs[0]), bytes(inputs[left])};
  std::byte* const sum[] = {bytes(inputs[0])};
  combine(halves, sum, count, DType::kF32, ReduceOp::kSum);
}

}  // namespace lockstep::parallel
