#include "lockstep/bench/offload/critical_path.h"

#include <algorithm>

#include "lockstep/ops/ops.h"

namespace lockstep::bench {
namespace {

double bytes_in(const nn::MemoryPlan& plan, DType dtype) {
  return static_cast<double>(plan.flat.elements() * size_of(dtype));
}

}  // namespace

BusBytes bytes_of_micro_batch(const nn::MemoryPlan& plan, std::int64_t micro_batches) {
  BusBytes bytes;
  if (plan.tiers.parameters == Tier::kHost && !plan.tiers.in_place) {
    for (const nn::Gather& gather : plan.gathers) {
      bytes.up +=
          static_cast<double>(plan.flat.range(gather.unit).elements * size_of(plan.setup.dtype));
    }
  }
  if (plan.tiers.gradients == Tier::kHost) {
    const double gradients = bytes_in(plan, plan.setup.gradient);
    const auto count = static_cast<double>(micro_batches);
    bytes.down += gradients;
    bytes.up += gradients * (count - 1) / count;  // the first starts with zero
  }
  if (plan.tiers.activations == Tier::kHost) {
    for (const nn::Absence& absence : plan.absences) {
      bytes.down += static_cast<double>(plan.requests[absence.before].bytes);
      bytes.up += static_cast<double>(plan.requests[absence.after].bytes);
    }
  }
  return bytes;
}

BusBytes bytes_of_update(const nn::MemoryPlan& plan) {
  BusBytes bytes;
  if (plan.tiers.update() == Tier::kDevice) return bytes;
  const bool gradients = plan.tiers.gradients == Tier::kDevice;
  const bool parameters = plan.tiers.parameters == Tier::kDevice;
  if (gradients) bytes.down += bytes_in(plan, plan.setup.gradient);
  if (parameters) bytes.up += bytes_in(plan, plan.setup.dtype);
  // f32 parameters are the master copy.
  if (parameters && plan.setup.dtype == DType::kF32) bytes.down += bytes_in(plan, DType::kF32);
  return bytes;
}

double critical_path(const StepParts& parts) {
  const auto count = static_cast<double>(parts.micro_batches);
  if (parts.delayed) {
    return std::max({count * parts.compute_seconds, parts.update_seconds,
                     (count * parts.micro_batch.down + parts.update.down) / parts.down_rate,
                     (count * parts.micro_batch.up + parts.update.up) / parts.up_rate});
  }
  const double micro = std::max({parts.compute_seconds, parts.micro_batch.down / parts.down_rate,
                                 parts.micro_batch.up / parts.up_rate});
  const double update = std::max(
      {parts.update_seconds, parts.update.down / parts.down_rate, parts.update.up / parts.up_rate});
  const double hidden = parts.overlaps ? parts.forward_seconds : 0;
  return count * micro + std::max(0.0, update - hidden);
}

}  // namespace lockstep::bench
