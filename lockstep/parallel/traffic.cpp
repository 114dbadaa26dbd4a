#include "lockstep/parallel/traffic.h"

#include "lockstep/parallel/ddp.h"

namespace lockstep::parallel {
namespace {

Traffic traffic_of_zero(const Crew& crew, const nn::MemoryPlan& plan) {
  const nn::Sharding& sharding = plan.sharding;
  const auto n = static_cast<std::uint64_t>(crew.workers);
  const auto micro_batches = static_cast<std::uint64_t>(crew.most_micro_batches);
  const auto others = [&](std::size_t block, DType dtype) {
    return (n - 1) * plan.flat.range(block).elements * size_of(dtype) / n;
  };
  Traffic traffic;
  for (std::size_t block = 0; block < plan.flat.blocks(); ++block) {
    traffic.gradients +=
        (sharding.gradients ? micro_batches : 1) * others(block, plan.setup.gradient);
    if (!sharding.parameters) traffic.parameters += others(block, plan.setup.dtype);
  }
  // Else a block's parameters come from the host.
  if (!sharding.parameters) return traffic;
  for (const nn::Gather& gather : plan.gathers) {
    traffic.parameters += micro_batches * others(gather.unit, plan.setup.dtype);
  }
  return traffic;
}

}  // namespace

std::optional<Traffic> traffic_of(const ParallelOptions& options, const Crew& crew,
                                  const nn::MemoryPlan& plan) {
  if (crew.workers == 1) return Traffic{};
  if (options.strategy == StrategyKind::kParameterServer ||
      options.compression.compression != Compression::kNone || !zero_plus_plus(options).empty()) {
    return std::nullopt;
  }
  return options.zero > 0 ? traffic_of_zero(crew, plan) : Ddp::traffic(options, crew, plan);
}

}  // namespace lockstep::parallel
