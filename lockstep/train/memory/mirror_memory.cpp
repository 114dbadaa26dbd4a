#include "lockstep/train/memory/mirror_memory.h"

#include <algorithm>

#include "lockstep/parallel/footprint.h"

namespace lockstep::train {
int mirroring_workers(const TrainOptions& options) {
  const parallel::ParallelOptions& parallel = options.parallel;
  if (parallel.strategy != parallel::StrategyKind::kParameterServer ||
      parallel.server.consistency == parallel::Consistency::kBsp) {
    return options.batch.workers;
  }
  return parallel.server.servers;
}

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

namespace {

std::string cannot_mirror_servers(const parallel::ParallelOptions& parallel, Device device) {
  const parallel::ServerOptions& server = parallel.server;
  if (server.placement != parallel::ServerPlacement::kColocated) {
    return "slices of parameter servers are mirrored with parallel.server_placement = "
           "\"colocated\" only";
  }
  if (server.consistency == parallel::Consistency::kBsp &&
      parallel.compression.compression != parallel::Compression::kNone) {
    return "the residuals of parallel.compression are not mirrored";
  }
  if (server.consistency != parallel::Consistency::kBsp && server.servers == 1) {
    return "with parallel.consistency = \"asp\" and \"ssp\" servers mirror each other, and "
           "parallel.servers = 1";
  }
  if (device != Device{}) return "slices of workers on GPUs are not mirrored";
  return "";
}

}  // namespace

std::string cannot_mirror(const TrainOptions& options, Device device) {
  const parallel::ParallelOptions& parallel = options.parallel;
  if (parallel.strategy == parallel::StrategyKind::kParameterServer) {
    return cannot_mirror_servers(parallel, device);
  }
  if (parallel.zero == 0) {
    return "with parallel.zero = 0 every worker has all states; it is for 1, 2 and 3, and for "
           "parameter servers";
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

std::vector<parallel::ServedSlice> served_slices_of(const TrainOptions& options,
                                                    const nn::MemoryPlan& plan) {
  return parallel::served_slices(options.parallel, options.optimizer, plan);
}

int server_count(std::span<const parallel::ServedSlice> slices) {
  int count = 0;
  for (const parallel::ServedSlice& slice : slices) count = std::max(count, slice.server + 1);
  return count;
}

std::vector<Request> mirror_memory(const TrainOptions& options, const nn::MemoryPlan& plan,
                                   int worker) {
  std::size_t own = shard_bytes(plan);
  std::size_t mirrored = own;
  if (options.parallel.strategy == parallel::StrategyKind::kParameterServer) {
    const int servers = options.parallel.server.servers;
    std::vector<std::size_t> of(static_cast<std::size_t>(std::max(options.batch.workers, servers)));
    for (const parallel::ServedSlice& slice : served_slices_of(options, plan)) {
      of[static_cast<std::size_t>(slice.server)] +=
          slice.range.elements * state_count(plan.optimizer) * sizeof(float);
    }
    const int members = mirroring_workers(options);
    if (worker >= members) return {};
    own = of[static_cast<std::size_t>(worker)];
    const auto ward = static_cast<std::size_t>(worker == 0 ? members : worker) - 1;
    mirrored = options.parallel.machines == 1 ? of[ward] : *std::ranges::max_element(of);
  }
  std::vector<Request> requests = {
      {.name = "own shard before the step", .group = "mirror", .bytes = own},
      {.name = "mirrored shard, newest", .group = "mirror", .bytes = mirrored},
      {.name = "mirrored shard, before", .group = "mirror", .bytes = mirrored}};
  std::erase_if(requests, [](const Request& one) { return one.bytes == 0; });
  return requests;
}

}  // namespace lockstep::train
