#include "lockstep/parallel/traffic.h"

#include <tuple>
#include <vector>

#include "lockstep/parallel/ddp/ddp.h"
#include "lockstep/parallel/zero/exchange.h"

namespace lockstep::parallel {
namespace {

// To price the algorithms of a thousand ranks takes seconds, and plans are compared by the dozen:
// the last ones are kept.
class KeptCalls {
 public:
  PlannedCalls& of(const ParallelOptions& options, int workers) {
    const CommOptions& comm = options.comm;
    const Key wanted(workers, options.machines, comm.emulate, comm.transport, comm.algorithms);
    if (!calls_ || made_for_ != wanted) {
      calls_.emplace(workers, options.machines, comm);
      made_for_ = wanted;
    }
    return *calls_;
  }

 private:
  using Key = std::tuple<int, int, decltype(CommOptions::emulate), decltype(CommOptions::transport),
                         decltype(CommOptions::algorithms)>;
  std::optional<PlannedCalls> calls_;
  Key made_for_;
};

// Whether the workers that hold the same experts are on all nodes alike.
bool has_even_groups(const ParallelOptions& options, int workers) {
  const int group = options.expert * options.context;
  return options.expert == 1 || options.machines == 1 || workers / options.machines % group == 0;
}

Traffic traffic_of_zero(const ParallelOptions& options, const WorkerPosition& position,
                        const nn::MemoryPlan& plan, const PlannedGroups& calls) {
  const nn::Sharding& sharding = plan.sharding;
  const auto micro_batches = static_cast<std::uint64_t>(position.most_micro_batches);
  std::vector<UnitTraffic> units;
  for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
    units.push_back(unit_traffic(options, position, plan, unit, calls));
  }
  Traffic traffic;
  for (const UnitTraffic& unit : units) {
    traffic.gradients += (sharding.gradients ? micro_batches : 1) * unit.add_up;
    if (!sharding.parameters) traffic.parameters += unit.gather;
  }
  // Else a block's parameters come from the host.
  if (!sharding.parameters) return traffic;
  std::vector<bool> gathered(units.size());
  for (const nn::Gather& gather : plan.gathers) {
    const UnitTraffic& unit = units[gather.unit];
    const bool again = gathered[gather.unit];
    gathered[gather.unit] = true;
    traffic.parameters += again ? micro_batches * unit.gather_again
                                : unit.gather + (micro_batches - 1) * unit.gather_again;
  }
  return traffic;
}

}  // namespace

std::optional<Traffic> traffic_of(const ParallelOptions& options, const WorkerPosition& position,
                                  const nn::MemoryPlan& plan) {
  if (position.workers == 1) return Traffic{};
  if (options.strategy == StrategyKind::kParameterServer ||
      options.compression.compression != Compression::kNone ||
      !has_even_groups(options, position.workers)) {
    return std::nullopt;
  }
  thread_local KeptCalls of_all, of_expert_data;
  const PlannedGroups calls{
      .of_all = of_all.of(options, position.workers),
      .of_expert_data = of_expert_data.of(options, position.workers / options.expert),
      .workers = position.workers,
      .experts = options.expert};
  return options.zero > 0 ? traffic_of_zero(options, position, plan, calls)
                          : Ddp::traffic(options, position, plan, calls);
}

}  // namespace lockstep::parallel
