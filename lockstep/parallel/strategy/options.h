// The settings of data parallelism: the keys parallel.*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/config/config.h"
#include "lockstep/comm/options.h"
#include "lockstep/nn/parameters/sharding.h"
#include "lockstep/parallel/compression/options.h"
#include "lockstep/parallel/strategy/server_options.h"
#include "lockstep/tensor/device.h"

namespace lockstep::parallel {

enum class StrategyKind : std::uint8_t { kDdp, kParameterServer };
// The order in which gradients are summed.
enum class Reduction : std::uint8_t {
  kFast,  // the fastest order; the same in every run with the same number of workers
  kTree,  // one fixed tree over the micro-batches of a step: the same with 1, 2, 4, 8 ... workers
};

// How the ranks of a context group attend to each other's tokens (nn/context_slice.h).
enum class ContextChoice : std::uint8_t {
  kAuto,  // in a ring where attention is causal, else by heads
  kHeads,
  kRing,
};

// How shards are encoded when they are sent (parallel/zero/part_wire.h).
enum class Quantization : std::uint8_t {
  kNone,
  kInt8,  // blocks of integers of 8 bits with a scale each; kInt4: of 4
  kInt4,
};

std::string_view name(StrategyKind strategy);      // "ddp", "parameter_server"
std::string_view name(Reduction reduction);        // "fast", "tree"
std::string_view name(Quantization quantization);  // "none", "int8", "int4"
std::string_view name(ContextChoice choice);       // "auto", "heads", "ring"

struct ParallelOptions {
  StrategyKind strategy = StrategyKind::kDdp;
  Reduction reduction = Reduction::kFast;
  double bucket_mb = 25;
  double first_bucket_mb = 1;
  std::string algorithm = "auto";  // of all-reduce
  bool overlap = true;
  int zero = 0;  // the ZeRO stage; 0: nothing is sharded
  nn::Partition partition = nn::Partition::kTensor;
  int max_unsharded_blocks = 2;
  bool reshard_after_forward = false;  // the last block's parameters, whose backward comes next
  bool no_sync = false;                // whole gradients are kept until the last micro-batch
  Quantization quantized_weights = Quantization::kNone;
  Quantization quantized_gradients = Quantization::kNone;  // across nodes
  bool secondary_partition = false;                        // a copy of parameters in every node
  CompressionOptions compression;
  ServerOptions server;
  int check_every = 100;  // steps between comparisons of all workers' parameters; 0: never
  int tensor = 1;         // ranks of a tensor group; every worker is one (nn/tensor_shard.h)
  bool sequence = false;  // whether they divide tokens too
  int tensor_chunks = 1;  // of tokens, whose sums travel beside the next product
  int pipeline = 1;       // stages; every worker has one rank, or tensor group, for each
  int context = 1;        // workers that divide the tokens of the same sequences
  int expert = 1;         // workers that divide the experts of a mixture (nn/expert_group.h)
  ContextChoice context_attention = ContextChoice::kAuto;
  std::string pipeline_schedule = "1f1b";  // of a step (plan/pipeline/step_schedule.h)
  int pipeline_chunks = 2;                 // of each stage, where they are interleaved
  int pipeline_slices = 0;                 // of a sequence, with terapipe; 0: the fastest ones

  // Not settings: the number of nodes, the device and the settings of the communicator, set by the
  // code that starts workers.
  int machines = 1;
  int tensor_rank = 0;   // of this rank in its tensor group
  int stage = 0;         // of this rank in its pipeline
  int context_rank = 0;  // of this rank in its context group
  int expert_rank = 0;   // of this rank in its expert group
  Device device;         // of the workers' gradients
  int device_ranks = 1;  // that may use it, at most
  CommOptions comm;
};

// Whether the last ranks of a job are dedicated servers.
inline bool has_own_servers(const ParallelOptions& options) {
  return options.strategy == StrategyKind::kParameterServer &&
         options.server.placement == ServerPlacement::kDedicated;
}

// Whether sequences go through the stages in slices of tokens (nn/token_slice.h).
inline bool slices_tokens(const ParallelOptions& options) {
  return options.pipeline > 1 && options.pipeline_schedule == "terapipe";
}
// Whether gradients are those of weights that are one update old (plan/pipeline/orders.h).
inline bool keeps_two_versions(const ParallelOptions& options) {
  return options.pipeline > 1 && options.pipeline_schedule == "pipedream_2bw";
}

// The ranks of one worker: a tensor group for each pipeline stage.
inline int ranks_per_worker(const ParallelOptions& options) {
  return options.tensor * options.pipeline;
}

// The ranks of the workers that read the same sequences.
inline int ranks_per_sequence(const ParallelOptions& options) {
  return ranks_per_worker(options) * options.context;
}

// The ranks of the workers that hold the model once: what a job has at least.
inline int ranks_per_model(const ParallelOptions& options) {
  return ranks_per_sequence(options) * options.expert;
}

// The number of workers in a job: without servers, and with the ranks of a worker as one. Throws
// Error(kInvalidArgument) if servers leave none, or if workers, context groups or expert groups of
// them do not divide the ranks.
int workers_of(const ParallelOptions& options, int ranks);

// The first setting of ZeRO++ that differs from its default, as text; empty: none.
std::string zero_plus_plus(const ParallelOptions& options);
// Throws the error for ZeRO++ with an unsupported placement of workers on nodes.
[[noreturn]] void fail_spread(const ParallelOptions& options);

// The all-reduce algorithm of gradients: "auto" or a name. Throws Error(kInvalidArgument) for one
// that does not sum in the order of the reduction, and for compressed gradients with the tree.
std::string all_reduce_algorithm(const ParallelOptions& options, int workers);

// Throws Error(kInvalidArgument) for settings that contradict each other or the number of workers,
// and Error(kUnsupported) for settings that force an algorithm with MPI.
void check(const ParallelOptions& options, int workers);

// Declares the keys; `options` must outlive `config` and stay in place.
void bind(Config& config, ParallelOptions& options);

}  // namespace lockstep::parallel
