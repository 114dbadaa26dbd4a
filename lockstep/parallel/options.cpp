#include "lockstep/parallel/options.h"

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/schedule/schedule.h"

namespace lockstep::parallel {
namespace {

constexpr std::string_view kStrategyNames[] = {"ddp", "parameter_server"};
constexpr std::string_view kReductionNames[] = {"fast", "tree"};

// These add up neighbours first, then pairs, then fours: the tree of parallel/tree_sum.h.
constexpr std::string_view kTreeAlgorithms[] = {"rabenseifner", "butterfly"};

void check_zero(const ParallelOptions& options) {
  if (options.zero == 0) return;
  if (options.strategy != StrategyKind::kDdp) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.zero = {} shares out the states of workers that all-reduce; with "
         "parallel.strategy = \"{}\" servers hold them. Leave one of them out",
         options.zero, name(options.strategy));
  }
  if (options.algorithm != kAutoAlgorithm) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.algorithm = \"{}\" is one of all-reduce, which parallel.zero = {} does without; "
         "leave one of them out",
         options.algorithm, options.zero);
  }
  if (options.compression.compression != Compression::kNone) {
    fail(ErrorCode::kUnsupported,
         "parallel.compression = \"{}\" cannot be had with parallel.zero = {}; leave one of them "
         "out",
         name(options.compression.compression), options.zero);
  }
}

}  // namespace

std::string_view name(StrategyKind strategy) {
  return kStrategyNames[static_cast<std::size_t>(strategy)];
}
std::string_view name(Reduction reduction) {
  return kReductionNames[static_cast<std::size_t>(reduction)];
}

int workers_of(const ParallelOptions& options, int ranks) {
  return ranks > 1 && has_own_servers(options) ? worker_count(options.server, ranks) : ranks;
}

std::string all_reduce_algorithm(const ParallelOptions& options, int workers) {
  if (options.reduction == Reduction::kFast) return options.algorithm;
  if (options.compression.compression != Compression::kNone) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.reduction = \"tree\" gives the same bits for any number of workers, but "
         "parallel.compression = \"{}\" does not; leave one of them out",
         name(options.compression.compression));
  }
  if (options.algorithm == kAutoAlgorithm)
    return std::string(workers > 2 ? kTreeAlgorithms[0] : kAutoAlgorithm);
  if (std::ranges::find(kTreeAlgorithms, options.algorithm) == std::end(kTreeAlgorithms)) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.algorithm = \"{}\" does not add up in the order of parallel.reduction = "
         "\"tree\"; use {}, or leave it \"auto\"",
         options.algorithm, fmt::join(kTreeAlgorithms, " or "));
  }
  return options.algorithm;
}

void check(const ParallelOptions& options, int workers) {
  check_zero(options);
  if (options.algorithm != kAutoAlgorithm) {
    schedule::find_algorithm(Collective::kAllReduce, options.algorithm);
  }
  all_reduce_algorithm(options, workers);
  if (options.strategy != StrategyKind::kParameterServer) return;
  if (options.server.place == ServerPlace::kBeside) worker_count(options.server, workers);
}

void bind(Config& config, ParallelOptions& options) {
  config.bind("parallel.strategy", options.strategy, kStrategyNames,
              "How workers share a run: ddp (all-reduce of gradients) or parameter_server.");
  config.bind("parallel.reduction", options.reduction, kReductionNames,
              "The order in which gradients are added up. fast: as it comes out fastest; tree: one "
              "fixed tree over the micro-batches of a step, so that 1, 2, 4 and 8 workers give the "
              "same bits (gradients are f32 then).");
  config.bind("parallel.bucket_mb", options.bucket_mb,
              "Gradients are reduced in buckets of so many MB (2^20 bytes) while backward goes on.",
              {.min = 0.001, .max = 1048576});
  config.bind("parallel.first_bucket_mb", options.first_bucket_mb,
              "The same for the first bucket, which should be on its way early.",
              {.min = 0.001, .max = 1048576});
  config.bind(
      "parallel.algorithm", options.algorithm,
      "The all-reduce algorithm of gradients, as in lockstep bench collectives; auto: chosen "
      "by size and topology.");
  config.bind("parallel.overlap", options.overlap,
              "Whether gradients are reduced while backward goes on, or after it.");
  config.bind("parallel.zero", options.zero,
              "What workers hold 1/N of instead of all: 1 the optimizer's states, 2 the gradients "
              "too, 3 the parameters too; 0: nothing.",
              {.min = 0, .max = 3});
  config.bind(
      "parallel.partition", options.partition, nn::kPartitionNames,
      "How it is shared out: tensor (an equal part of every block) or layer (whole blocks).");
  config.bind("parallel.most_gathered", options.most_gathered,
              "With zero = 3, how many blocks' parameters are whole at once.", {.min = 1});
  config.bind("parallel.hold_gradients", options.hold_gradients,
              "With zero = 2 or 3 and several micro-batches a step: keep whole gradients until the "
              "last one instead of adding up after each: sends less, takes more memory.");
  bind(config, options.compression);
  bind(config, options.server);
  config.bind("parallel.check_every", options.check_every,
              "Steps between comparisons of all workers' parameters (ddp); 0: never.", {.min = 0});
}

}  // namespace lockstep::parallel
