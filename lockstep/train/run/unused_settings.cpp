#include "lockstep/train/run/unused_settings.h"

#include <fmt/format.h>

#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train {
namespace {

// Why whole gradients are not held for longer; empty: they are.
std::string why_not_held(const TrainOptions& options) {
  const int zero = options.parallel.zero;
  if (zero < 2) {
    return fmt::format("gradients are not sharded with parallel.zero = {}; it applies to 2 and 3",
                       zero);
  }
  if (solved(options.batch).accumulation == 1) return "a worker has one micro-batch a step";
  if (options.parallel.reduction == parallel::Reduction::kTree) {
    return "parallel.reduction = \"tree\" keeps whole gradients anyway";
  }
  return "";
}

std::vector<nn::Gather> gathers_with(TrainOptions options, int most, const Ops& ops) {
  options.parallel.max_unsharded_blocks = most;
  return plan_run(options, ops, 0, nn::Places::kNone).gathers;
}

// Why max_unsharded_blocks is not how many are gathered; empty: it is.
std::string why_not_gathered(const TrainOptions& options, const Ops& ops) {
  const int most = options.parallel.max_unsharded_blocks;
  const std::vector<nn::Gather> gathers = gathers_with(options, most, ops);
  if (gathers.empty()) {
    return "no parameters are gathered; it applies to parallel.zero = 3 and offload.parameters";
  }
  for (int fewer = 1; fewer < most; ++fewer) {
    if (gathers_with(options, fewer, ops) != gathers) continue;
    return fmt::format("blocks are gathered one step ahead, so at most {} are unsharded at once",
                       fewer);
  }
  return "";
}

}  // namespace

std::vector<std::string> unused_settings(const TrainOptions& options, const Config& config,
                                         const Ops& ops) {
  std::vector<std::string> idle;
  const auto add = [&](std::string_view setting, const std::string& why) {
    if (!why.empty()) idle.push_back(fmt::format("{} has no effect: {}", setting, why));
  };
  const parallel::ParallelOptions& spread = options.parallel;
  if (spread.strategy == parallel::StrategyKind::kParameterServer) {
    const std::string why =
        "parameter servers call no all-reduce; it applies to parallel.strategy = \"ddp\"";
    if (!spread.overlap)
      add("parallel.overlap = false", why + ", and parallel.schedule to parameter servers");
    if (spread.algorithm != parallel::ParallelOptions().algorithm) {
      add(fmt::format("parallel.algorithm = \"{}\"", spread.algorithm), why);
    }
  }
  const bool stage_is_chosen = options.memory_auto && !config.is_set("parallel.zero");
  if (options.batch.workers > 1 && !stage_is_chosen) {
    if (config.is_set("parallel.partition") && spread.partition == nn::Partition::kLayer &&
        spread.zero == 0) {
      add("parallel.partition = \"layer\"",
          "nothing is sharded with parallel.zero = 0; it applies to 1, 2 and 3");
    }
    if (config.is_set("parallel.no_sync") && spread.no_sync) {
      add("parallel.no_sync = true", why_not_held(options));
    }
  }
  const bool may_gather = options.batch.workers > 1 || options.offload.tiers.any();
  if (config.is_set("parallel.max_unsharded_blocks") && may_gather && !options.memory_auto &&
      spread.max_unsharded_blocks != parallel::ParallelOptions().max_unsharded_blocks) {
    add(fmt::format("parallel.max_unsharded_blocks = {}", spread.max_unsharded_blocks),
        why_not_gathered(options, ops));
  }
  return idle;
}

}  // namespace lockstep::train
