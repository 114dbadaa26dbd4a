#include "lockstep/train/memory/mirror_memory.h"

namespace lockstep::train {
std::size_t state_count(nn::OptimizerState optimizer) {
  switch (optimizer) {
    case nn::OptimizerState::kMoments:
      return 3;
    case nn::OptimizerState::kVelocity:
      return 2;
    case nn::OptimizerState::kNone:
      break;
  }
  return 1;
}

std::string cannot_mirror(const TrainOptions& options, Device device) {
  const parallel::ParallelOptions& parallel = options.parallel;
  if (parallel.strategy == parallel::StrategyKind::kParameterServer) {
    return "parameter servers hold the states; it is for parallel.zero = 1, 2 and 3";
  }
  if (parallel.zero == 0) {
    return "with parallel.zero = 0 every worker has all states; it is for 1, 2 and 3";
  }
  if (device != Device{}) return "shards on GPUs are not mirrored";
  if (parallel.tensor > 1 || parallel.pipeline > 1 || parallel.expert > 1) {
    return "shards of tensor groups, expert groups and pipelines are not mirrored";
  }
  if (options.precision == plan::Precision::kFp8) return "the scales of fp8 are not mirrored";
  if (options.offload.tiers.any()) return "with offload.* states are not mirrored";
  return "";
}

bool keeps_shards(const TrainOptions& options, Device device) {
  return options.survive.mirror && cannot_mirror(options, device).empty();
}

bool mirrors_shards(const TrainOptions& options, Device device) {
  return options.batch.workers > 1 && keeps_shards(options, device);
}

std::size_t shard_bytes(const nn::MemoryPlan& plan) {
  return plan.shards.elements() * state_count(plan.optimizer) * sizeof(float);
}

std::vector<Request> mirror_memory(const nn::MemoryPlan& plan) {
  const std::size_t bytes = shard_bytes(plan);
  return {{.name = "own shard before the step", .group = "mirror", .bytes = bytes},
          {.name = "mirrored shard, newest", .group = "mirror", .bytes = bytes},
          {.name = "mirrored shard, before", .group = "mirror", .bytes = bytes}};
}

}  // namespace lockstep::train
