#include "lockstep/parallel/zero/exchange.h"

#include "lockstep/base/error.h"
#include "lockstep/parallel/communication/machines.h"
#include "lockstep/parallel/zero/flat_exchange.h"
#include "lockstep/parallel/zero/machine_exchange.h"

namespace lockstep::parallel {
namespace {

// On one node there is nothing to cross, and parts come together at once unless they are
// quantised. On GPUs NCCL decides what crosses nodes, except for ZeRO++.
bool goes_by_machines(const ParallelOptions& options, int machines) {
  if (options.partition == nn::Partition::kLayer || options.expert > 1) return false;
  const bool has_stages = options.device == Device{} || !zero_plus_plus(options).empty();
  return (machines > 1 && has_stages) || options.quantized_weights != Quantization::kNone;
}

// Of a plan; nothing: all workers at once.
std::optional<MachineGrid> planned_grid(const ParallelOptions& options,
                                        const WorkerPosition& position) {
  const bool is_even = position.workers % options.machines == 0;
  if (!is_even || !goes_by_machines(options, options.machines)) return std::nullopt;
  return MachineGrid{.machines = options.machines, .places = position.workers / options.machines};
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(Communicator& world, const ParallelOptions& options) {
  const std::optional<MachineGrid> grid = machine_grid(world.machines());
  if (!grid && !zero_plus_plus(options).empty()) fail_spread(options);
  if (!grid || !goes_by_machines(options, grid->machines)) {
    return std::make_unique<FlatExchange>(world, options);
  }
  if (grid->machines != options.machines) {
    fail(ErrorCode::kInvalidArgument, "the run was planned for {} nodes, but its ranks are on {}",
         options.machines, grid->machines);
  }
  return std::make_unique<MachineExchange>(world, options, *grid);
}

std::vector<Request> exchange_memory(const ParallelOptions& options, const WorkerPosition& position,
                                     const nn::MemoryPlan& plan) {
  const auto grid = planned_grid(options, position);
  return grid ? MachineExchange::memory(options, *grid, plan) : std::vector<Request>();
}

UnitTraffic unit_traffic(const ParallelOptions& options, const WorkerPosition& position,
                         const nn::MemoryPlan& plan, std::size_t unit, const PlannedGroups& calls) {
  const auto grid = planned_grid(options, position);
  return grid ? MachineExchange::traffic(options, *grid, plan, unit, calls)
              : FlatExchange::traffic(options, plan, unit, calls);
}

}  // namespace lockstep::parallel
