#include "lockstep/train/options/survive_options.h"

namespace lockstep::train {

std::string cannot_evict(const parallel::ParallelOptions& options) {
  if (options.strategy == parallel::StrategyKind::kParameterServer) {
    return "with parameter servers nobody knows how long each worker takes in a step";
  }
  if (parallel::ranks_per_model(options) > 1 || options.expert > 1) {
    return "in a mesh ranks wait for each other inside a step, so that nobody knows which one is "
           "slow";
  }
  return "";
}

void bind(Config& config, SurviveOptions& options) {
  config.bind(
      "survive.mirror", options.mirror,
      "Whether every worker's shard is mirrored in the memory of another worker, on another "
      "node where there are several, so that a job with parallel.zero, or with parameter servers, "
      "continues in memory when a rank dies. Takes the memory of three shards on each worker.");
  config.bind(
      "survive.hang_timeout", options.hang_timeout,
      "How long ranks wait for one that does not answer before it is killed and started "
      "again, where ranks are (--max-restarts); auto: comm.timeout, which is also the most. "
      "Longer than what one rank does while others wait, as writing a checkpoint with "
      "checkpoint.async_save = false.");
  config.bind(
      "survive.evict_slow", options.evict_slow,
      "A rank that computes so many times as long as the others, in most of the last 20 steps, is "
      "killed and replaced, by a spare or a restart, as long as one more restart is left "
      "(--max-restarts); 0: none is. From 1.2, as 3: three times as long.",
      {.min = 0});
}

}  // namespace lockstep::train
