#include "lockstep/parallel/strategy/sharding_of.h"

namespace lockstep::parallel {
namespace {

nn::Sharding zero_sharding(const ParallelOptions& options, const WorkerPosition& position) {
  // The tree sums a worker's own micro-batches first.
  const bool holds =
      position.most_micro_batches > 1 && (options.no_sync || options.reduction == Reduction::kTree);
  return {.workers = position.workers,
          .worker = position.worker,
          .optimizer = options.zero >= 1,
          .gradients = options.zero >= 2 && !holds,
          .parameters = options.zero >= 3,
          .partition = options.partition,
          .max_unsharded_blocks = options.max_unsharded_blocks,
          .reshard_after_forward = options.reshard_after_forward,
          .symmetric = true,
          .experts = options.expert,
          .context = options.context};
}

}  // namespace

nn::Sharding sharding_of(const ParallelOptions& options, const WorkerPosition& position) {
  nn::Sharding whole;
  whole.max_unsharded_blocks = options.max_unsharded_blocks;  // of what comes from another tier
  if (position.workers == 1 || options.strategy == StrategyKind::kParameterServer) return whole;
  if (options.zero > 0) return zero_sharding(options, position);
  whole.workers = position.workers;
  whole.worker = position.worker;
  whole.symmetric = true;
  whole.experts = options.expert;
  whole.context = options.context;
  return whole;
}

}  // namespace lockstep::parallel
