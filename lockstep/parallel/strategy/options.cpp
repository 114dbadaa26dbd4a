#include "lockstep/parallel/strategy/options.h"

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/schedule/schedule.h"

namespace lockstep::parallel {
namespace {

constexpr std::string_view kStrategyNames[] = {"ddp", "parameter_server"};
// The schedules that runs execute.
constexpr std::string_view kInterleaved = "interleaved";
constexpr std::string_view kRunSchedules[] = {"1f1b",  "gpipe",    kInterleaved,    "zb_h1",
                                              "zb_h2", "terapipe", "pipedream_2bw", "sequential"};
constexpr std::string_view kReductionNames[] = {"fast", "tree"};
constexpr std::string_view kQuantizationNames[] = {"none", "int8", "int4"};
constexpr std::string_view kContextNames[] = {"auto", "heads", "ring"};

// These sum neighbours first, then pairs, then fours: the tree of parallel/gradients/tree_sum.h.
constexpr std::string_view kTreeAlgorithms[] = {"rabenseifner", "butterfly"};

void check_zero_plus_plus(const ParallelOptions& options) {
  const std::string setting = zero_plus_plus(options);
  if (setting.empty()) return;
  const bool of_parameters =
      options.secondary_partition || options.quantized_weights != Quantization::kNone;
  if (options.zero < (of_parameters ? 3 : 1)) {
    fail(ErrorCode::kInvalidArgument,
         "{} applies to sharded {}, but parallel.zero = {} does not shard them. Set parallel.zero "
         "= 3, or leave it out",
         setting, of_parameters ? "parameters" : "gradients", options.zero);
  }
  if (options.partition == nn::Partition::kLayer) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.partition = \"layer\": it needs an equal shard of "
         "every block on every worker. Use parallel.partition = \"tensor\"",
         setting);
  }
  const bool quantises = options.quantized_weights != Quantization::kNone ||
                         options.quantized_gradients != Quantization::kNone;
  if (quantises && options.reduction == Reduction::kTree) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.reduction = \"tree\" gives the same bits on any number of workers, but {} does "
         "not; leave one of them out",
         setting);
  }
}

void check_zero(const ParallelOptions& options) {
  check_zero_plus_plus(options);
  if (options.reshard_after_forward && options.zero < 3) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.reshard_after_forward = true needs sharded parameters, and parallel.zero = {} "
         "shards none. Set parallel.zero = 3, or leave parallel.reshard_after_forward out",
         options.zero);
  }
  if (options.zero == 0) return;
  if (options.strategy != StrategyKind::kDdp) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.zero = {} shards the states of workers that all-reduce, but with "
         "parallel.strategy = \"{}\" servers hold the states. Leave one of them out",
         options.zero, name(options.strategy));
  }
  if (options.algorithm != kAutoAlgorithm) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.algorithm = \"{}\" is an all-reduce algorithm, but parallel.zero = {} calls no "
         "all-reduce on gradients; leave one of them out",
         options.algorithm, options.zero);
  }
  if (options.compression.compression != Compression::kNone) {
    fail(ErrorCode::kUnsupported,
         "parallel.compression = \"{}\" is not supported with parallel.zero = {}; leave one of "
         "them out",
         name(options.compression.compression), options.zero);
  }
}

// The setting that makes workers call collectives by a certain algorithm, as text; empty: none
// does. The sum of two workers is the same in any order, and servers sum without collectives.
std::string forcing_setting(const ParallelOptions& options, int workers) {
  if (options.strategy == StrategyKind::kParameterServer) return "";
  if (options.algorithm != kAutoAlgorithm) {
    return fmt::format("parallel.algorithm = \"{}\"", options.algorithm);
  }
  const bool tree = options.reduction == Reduction::kTree && workers > 2;
  return tree ? fmt::format("parallel.reduction = \"{}\"", name(options.reduction)) : "";
}

// What does not divide parameters by tensor groups yet.
void check_tensor(const ParallelOptions& options) {
  if (options.tensor == 1 && options.sequence) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.sequence = true divides tokens over a tensor group, but parallel.tensor = 1 "
         "makes none. Set parallel.tensor to the number of its ranks, or leave parallel.sequence "
         "out");
  }
  if (options.tensor == 1) return;
  const auto refuse = [&](const std::string& setting) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.tensor = {}; leave one of them out", setting,
         options.tensor);
  };
  if (options.strategy == StrategyKind::kParameterServer) {
    refuse("parallel.strategy = \"parameter_server\"");
  }
  if (options.compression.compression != Compression::kNone) {
    refuse(fmt::format("parallel.compression = \"{}\"", name(options.compression.compression)));
  }
  if (const std::string setting = zero_plus_plus(options); !setting.empty()) refuse(setting);
}

// What pipelines do not support yet.
void check_pipeline(const ParallelOptions& options) {
  if (options.pipeline == 1) return;
  const auto refuse = [&](const std::string& setting, std::string_view instead = "") {
    fail(ErrorCode::kUnsupported, "{} is not supported with parallel.pipeline = {}; {}", setting,
         options.pipeline, instead.empty() ? "leave one of them out" : instead);
  };
  const std::string& schedule = options.pipeline_schedule;
  if (std::ranges::find(kRunSchedules, schedule) == std::end(kRunSchedules)) {
    refuse(fmt::format("parallel.pipeline_schedule = \"{}\"", schedule),
           fmt::format("runs execute {}{}", fmt::join(kRunSchedules, ", "),
                       did_you_mean(schedule, kRunSchedules)));
  }
  if (options.strategy == StrategyKind::kParameterServer) {
    refuse("parallel.strategy = \"parameter_server\"");
  }
  if (options.compression.compression != Compression::kNone) {
    refuse(fmt::format("parallel.compression = \"{}\"", name(options.compression.compression)));
  }
  if (const std::string setting = zero_plus_plus(options); !setting.empty()) refuse(setting);
  const bool takes_turns = (schedule == kInterleaved && options.pipeline_chunks > 1) ||
                           schedule.starts_with("zb") || slices_tokens(options);
  if (takes_turns && options.reduction == Reduction::kTree) {
    refuse(
        fmt::format("parallel.reduction = \"tree\" together with parallel.pipeline_schedule = "
                    "\"{}\"",
                    schedule),
        "take 1f1b, gpipe or sequential: the tree adds up whole micro-batches, and this schedule "
        "finishes their parts in turn");
  }
}

// What does not go with two versions of the weights, and gradients that are one update late.
void check_two_versions(const ParallelOptions& options) {
  if (!keeps_two_versions(options)) return;
  const auto refuse = [](const std::string& setting, std::string_view why) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.pipeline_schedule = \"pipedream_2bw\": {}; take 1f1b, "
         "or leave it out",
         setting, why);
  };
  if (options.zero > 0) {
    refuse(fmt::format("parallel.zero = {}", options.zero),
           "every worker keeps two versions of all parameters of its stage");
  }
  if (options.context > 1) {
    refuse(fmt::format("parallel.context = {}", options.context),
           "ranks of a context group agree in every layer, and stages are in different steps");
  }
  if (options.expert > 1) {
    refuse(fmt::format("parallel.expert = {}", options.expert),
           "the norm of experts is agreed on beside the next step, which exchanges their rows");
  }
  if (options.reduction == Reduction::kTree) {
    refuse("parallel.reduction = \"tree\"",
           "its bits are those of one worker, and gradients of older weights have others");
  }
}

// What context groups do not support.
void check_context(const ParallelOptions& options) {
  if (options.context == 1) return;
  const auto refuse = [&](std::string_view setting, std::string_view why) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.context = {}: {}; leave one of them out", setting,
         options.context, why);
  };
  if (options.strategy == StrategyKind::kParameterServer) {
    refuse("parallel.strategy = \"parameter_server\"",
           "the workers of a context group compute every sequence together");
  }
  if (options.reduction == Reduction::kTree) {
    refuse("parallel.reduction = \"tree\"",
           "the tree adds up whole micro-batches, and a rank has some tokens of them");
  }
}

// What expert groups do not support: whatever takes the gradients of all workers to be of the same
// parameters.
void check_experts(const ParallelOptions& options) {
  if (options.expert == 1) return;
  const auto refuse = [&](const std::string& setting, std::string_view why) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.expert = {}: {}; leave one of them out", setting,
         options.expert, why);
  };
  constexpr std::string_view kOwn = "workers hold different experts";
  if (options.strategy == StrategyKind::kParameterServer) {
    refuse("parallel.strategy = \"parameter_server\"", kOwn);
  }
  if (options.compression.compression != Compression::kNone) {
    refuse(fmt::format("parallel.compression = \"{}\"", name(options.compression.compression)),
           kOwn);
  }
  if (const std::string setting = zero_plus_plus(options); !setting.empty()) refuse(setting, kOwn);
  if (options.zero > 0 && options.partition == nn::Partition::kLayer) {
    refuse("parallel.partition = \"layer\"", kOwn);
  }
  if (options.reduction == Reduction::kTree) {
    refuse(
        "parallel.reduction = \"tree\"",
        "the tree adds up one micro-batch after the other, and an expert gets tokens of those of "
        "several ranks at once");
  }
}

void check_backend(const ParallelOptions& options, int workers) {
  if (options.comm.backend != Backend::kMpi || workers == 1) return;
  const std::string setting = forcing_setting(options, workers);
  if (setting.empty()) return;
  fail(ErrorCode::kUnsupported,
       "{} is not supported with comm.backend = \"mpi\" and {} workers: MPI chooses its algorithms "
       "itself. Use comm.backend = \"native\", or leave it out",
       setting, workers);
}

}  // namespace

std::string_view name(StrategyKind strategy) {
  return kStrategyNames[static_cast<std::size_t>(strategy)];
}
std::string_view name(Reduction reduction) {
  return kReductionNames[static_cast<std::size_t>(reduction)];
}

std::string_view name(Quantization quantization) {
  return kQuantizationNames[static_cast<std::size_t>(quantization)];
}

std::string zero_plus_plus(const ParallelOptions& options) {
  if (options.quantized_weights != Quantization::kNone) {
    return fmt::format("parallel.quantized_weights = \"{}\"", name(options.quantized_weights));
  }
  if (options.secondary_partition) return "parallel.secondary_partition = true";
  if (options.quantized_gradients != Quantization::kNone) {
    return fmt::format("parallel.quantized_gradients = \"{}\"", name(options.quantized_gradients));
  }
  return "";
}

std::string_view name(ContextChoice choice) {
  return kContextNames[static_cast<std::size_t>(choice)];
}

void fail_spread(const ParallelOptions& options) {
  fail(ErrorCode::kUnsupported,
       "{} needs the same number of ranks on every node, with the ranks of a node numbered "
       "consecutively. Start the same number on each node, or leave it out",
       zero_plus_plus(options));
}

int workers_of(const ParallelOptions& options, int ranks) {
  if (ranks > 1 && has_own_servers(options)) return worker_count(options.server, ranks);
  if (options.pipeline > 1 && ranks % ranks_per_worker(options) != 0) {
    std::vector<int> possible;
    for (int stages = 1; options.tensor * stages <= ranks; ++stages) {
      if (ranks % (options.tensor * stages) == 0) possible.push_back(stages);
    }
    const int each = ranks_per_worker(options);
    fail(ErrorCode::kInvalidArgument,
         "parallel.pipeline = {}{} makes workers of {} ranks, which do not divide the {} rank{} of "
         "this job; {}start a multiple of {} ranks (--ranks)",
         options.pipeline,
         options.tensor > 1 ? fmt::format(" with parallel.tensor = {}", options.tensor) : "", each,
         ranks, ranks == 1 ? "" : "s",
         possible.empty()
             ? ""
             : fmt::format("take parallel.pipeline = {}, or ", fmt::join(possible, ", ")),
         each);
  }
  if (ranks % options.tensor != 0) {
    std::vector<int> possible;
    for (int size = 1; size <= ranks; ++size) {
      if (ranks % size == 0) possible.push_back(size);
    }
    fail(ErrorCode::kInvalidArgument,
         "parallel.tensor = {} does not divide the {} rank{} of this job into tensor groups of "
         "equal size; take one of {}, or start a multiple of {} ranks (--ranks)",
         options.tensor, ranks, ranks == 1 ? "" : "s", fmt::join(possible, ", "), options.tensor);
  }
  if (ranks % ranks_per_sequence(options) != 0) {
    const int each = ranks_per_sequence(options);
    std::vector<int> possible;
    for (int size = 1; size * ranks_per_worker(options) <= ranks; ++size) {
      if (ranks % (size * ranks_per_worker(options)) == 0) possible.push_back(size);
    }
    fail(
        ErrorCode::kInvalidArgument,
        "parallel.context = {} makes groups of {} ranks, which do not divide the {} rank{} of this "
        "job; take parallel.context = {}, or start a multiple of {} ranks (--ranks)",
        options.context, each, ranks, ranks == 1 ? "" : "s", fmt::join(possible, ", "), each);
  }
  if (ranks % ranks_per_model(options) != 0) {
    const int each = ranks_per_model(options);
    std::vector<int> possible;
    for (int size = 1; size * ranks_per_sequence(options) <= ranks; ++size) {
      if (ranks % (size * ranks_per_sequence(options)) == 0) possible.push_back(size);
    }
    fail(ErrorCode::kInvalidArgument,
         "parallel.expert = {} makes groups of {} ranks, which do not divide the {} rank{} of this "
         "job; take parallel.expert = {}, or start a multiple of {} ranks (--ranks)",
         options.expert, each, ranks, ranks == 1 ? "" : "s", fmt::join(possible, ", "), each);
  }
  return ranks / ranks_per_worker(options);
}

std::string all_reduce_algorithm(const ParallelOptions& options, int workers) {
  if (options.reduction == Reduction::kFast) return options.algorithm;
  if (options.compression.compression != Compression::kNone) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.reduction = \"tree\" gives the same bits on any number of workers, but "
         "parallel.compression = \"{}\" does not; leave one of them out",
         name(options.compression.compression));
  }
  // Two workers, and GPUs, sum in that order anyway.
  const bool is_chosen = workers > 2 && options.device == Device{};
  if (options.algorithm == kAutoAlgorithm)
    return std::string(is_chosen ? kTreeAlgorithms[0] : kAutoAlgorithm);
  if (std::ranges::find(kTreeAlgorithms, options.algorithm) == std::end(kTreeAlgorithms)) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.algorithm = \"{}\" does not sum in the order of parallel.reduction = \"tree\"; "
         "use {}, or leave it \"auto\"",
         options.algorithm, fmt::join(kTreeAlgorithms, " or "));
  }
  return options.algorithm;
}

void check(const ParallelOptions& options, int workers) {
  check_zero(options);
  check_tensor(options);
  check_pipeline(options);
  check_two_versions(options);
  check_experts(options);
  check_context(options);
  const bool is_even = workers % options.machines == 0;
  if (workers > 1 && !is_even && !zero_plus_plus(options).empty()) fail_spread(options);
  if (options.algorithm != kAutoAlgorithm) {
    schedule::find_algorithm(Collective::kAllReduce, options.algorithm);
  }
  all_reduce_algorithm(options, workers);
  check_backend(options, workers);
  if (options.strategy != StrategyKind::kParameterServer) return;
  if (options.server.placement == ServerPlacement::kColocated)
    worker_count(options.server, workers);
}

void bind(Config& config, ParallelOptions& options) {
  config.bind("parallel.strategy", options.strategy, kStrategyNames,
              "How workers combine gradients: ddp (all-reduce) or parameter_server.");
  config.bind("parallel.reduction", options.reduction, kReductionNames,
              "The order in which gradients are summed. fast: whichever order is fastest; tree: "
              "one fixed tree over the micro-batches of a step, so that 1, 2, 4 and 8 workers give "
              "the same bits (gradients are f32 then).");
  config.bind("parallel.bucket_mb", options.bucket_mb,
              "Size of a gradient bucket in MB (2^20 bytes). A bucket is reduced as soon as "
              "backward has filled it.",
              {.min = 0.001, .max = 1048576});
  config.bind("parallel.first_bucket_mb", options.first_bucket_mb,
              "Size of the first bucket in MB. A small one starts communication early.",
              {.min = 0.001, .max = 1048576});
  config.bind("parallel.algorithm", options.algorithm,
              "The all-reduce algorithm for gradients, named as in lockstep bench collectives; "
              "auto: chosen by size and topology.");
  config.bind("parallel.overlap", options.overlap,
              "Whether gradients are reduced during backward (true) or after it (false).");
  config.bind("parallel.zero", options.zero,
              "The ZeRO stage. 0: nothing is sharded; 1: optimizer states; 2: gradients, too; 3: "
              "parameters, too.",
              {.min = 0, .max = 3});
  config.bind("parallel.partition", options.partition, nn::kPartitionNames,
              "What a shard is: an equal part of every block (tensor), or whole blocks (layer).");
  config
      .bind("parallel.max_unsharded_blocks", options.max_unsharded_blocks,
            "With zero = 3 or offload.parameters, how many blocks may be unsharded at once. Blocks "
            "are gathered ahead of their use.",
            {.min = 1})
      .formerly("parallel.most_gathered");
  config
      .bind("parallel.reshard_after_forward", options.reshard_after_forward,
            "With zero = 3, whether the last block's parameters are resharded after its forward "
            "and gathered again for its backward, which comes next. true: a step gathers every "
            "block twice, even those whose backward does not read parameters, and sends three "
            "times the parameters, as the ZeRO paper counts.")
      .formerly("parallel.keep_at_turn", opposite);
  config
      .bind("parallel.no_sync", options.no_sync,
            "With zero = 2 or 3 and several micro-batches a step: keep whole gradients until the "
            "last micro-batch instead of reduce-scattering after each: sends less, takes more "
            "memory.")
      .formerly("parallel.hold_gradients");
  const Config::Convert exact_is_none = renamed_values({{"exact", "none"}});
  config
      .bind("parallel.quantized_weights", options.quantized_weights, kQuantizationNames,
            "With zero = 3, how parameters are sent when they are gathered: as they are (none), or "
            "in blocks of integers of 8 or 4 bits with a scale each (ZeRO++).")
      .formerly("parallel.gather_weights", exact_is_none);
  config
      .bind(
          "parallel.secondary_partition", options.secondary_partition,
          "With zero = 3, whether every node keeps all parameters, as they were gathered, sharded "
          "over its workers, so that they cross between nodes once a step (ZeRO++).")
      .formerly("parallel.secondary");
  config
      .bind("parallel.quantized_gradients", options.quantized_gradients, kQuantizationNames,
            "With zero, how gradients that a node has summed are sent to other nodes: as they are "
            "(none), or in blocks of integers as in parallel.quantized_weights.")
      .formerly("parallel.reduce_gradients", exact_is_none);
  bind(config, options.compression);
  bind(config, options.server);
  config.bind("parallel.tensor", options.tensor,
              "Ranks of a tensor group. They divide the heads of attention, the width of "
              "feed-forward networks and the vocabulary of one model, and exchange activations "
              "twice in every layer; consecutive ranks are a group. Data parallelism and ZeRO work "
              "between groups.",
              {.min = 1, .max = 1024});
  config.bind(
      "parallel.sequence", options.sequence,
      "With parallel.tensor, whether the ranks of a group also divide the tokens of what is "
      "between matrix products: the residual stream, norms and dropout (sequence "
      "parallelism). Activations take 1/tensor of the memory; a layer sends five quarters of the "
      "bytes.");
  config.bind("parallel.tensor_chunks", options.tensor_chunks,
              "With parallel.tensor, the chunks of tokens in which products are computed whose "
              "results the ranks of a group sum: the sum of one chunk travels while the next is "
              "computed. For groups on several nodes whose ranks have idle cores.",
              {.min = 1, .max = 64});
  config.bind("parallel.pipeline", options.pipeline,
              "Stages of a pipeline. Each has a run of the model's blocks, and micro-batches go "
              "through them one behind the other. Data parallelism is what ranks / (tensor * "
              "pipeline) leaves.",
              {.min = 1, .max = 1024});
  config.bind("parallel.pipeline_schedule", options.pipeline_schedule,
              "With parallel.pipeline, the order in which stages compute: 1f1b, gpipe, interleaved "
              "(several chunks per stage), zb_h1 and zb_h2 (zero bubble: gradients of weights fill "
              "the time in which 1f1b waits), terapipe (sequences in slices of tokens that follow "
              "each other through the stages), pipedream_2bw (the pipeline is never empty, and "
              "gradients are those of weights that are one update old; other losses than 1f1b), or "
              "sequential (one micro-batch at a time).");
  config.bind("parallel.pipeline_chunks", options.pipeline_chunks,
              "With parallel.pipeline_schedule = \"interleaved\", the chunks of blocks that each "
              "stage has.",
              {.min = 1, .max = 1024});
  config.bind("parallel.pipeline_slices", options.pipeline_slices,
              "With parallel.pipeline_schedule = \"terapipe\", the slices of a sequence, of equal "
              "length; 0: those with the least time, later ones shorter, by a dynamic programme.",
              {.min = 0, .max = 4096});
  config.bind(
      "parallel.context", options.context,
      "Ranks of a context group. They divide the tokens of every sequence and exchange them "
      "in attention alone; each has all parameters, so to data parallelism and ZeRO they "
      "are workers. For sequences whose activations are too large for one rank.",
      {.min = 1, .max = 1024});
  config.bind(
      "parallel.context_attention", options.context_attention, kContextNames,
      "With parallel.context, how attention reads the tokens of other ranks: heads (an "
      "all-to-all gives every rank all tokens of some heads; ranks divide the heads), ring (keys "
      "and values travel around the ranks while these compute), or auto: ring where "
      "tokens see only earlier ones and no window is shorter than the sequences, else heads.");
  config.bind(
      "parallel.expert", options.expert,
      "Ranks of an expert group. They divide the experts of a mixture and exchange the rows "
      "of tokens in every layer; everything else is as in data parallelism, each with "
      "sequences of its own. Data parallelism of an expert is what ranks / (tensor * "
      "pipeline * context * expert) leaves.",
      {.min = 1, .max = 1024});
  config.bind(
      "parallel.check_every", options.check_every,
      "Steps between comparisons of all workers' parameters; 0: only before a checkpoint is "
      "written.",
      {.min = 0});
}

}  // namespace lockstep::parallel
