#include "lockstep/parallel/offload/options.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text/units.h"
#include "lockstep/parallel/strategy/sharding_of.h"

namespace lockstep::parallel {

namespace {

// Strategies that sum whole flat buffers of gradients need them in memory.
void check_filed_gradients(const ParallelOptions& options, const WorkerPosition& position) {
  if (options.reduction == Reduction::kTree && position.most_micro_batches > 1) {
    fail(ErrorCode::kUnsupported,
         "offload.gradients = \"file\" saves nothing where parallel.reduction = \"tree\" keeps "
         "sums of {} micro-batches in memory; use \"host\", or parallel.reduction = \"fast\"",
         position.most_micro_batches);
  }
  if (position.workers == 1 || sharding_of(options, position).gradients) return;
  if (options.zero < 2) {
    fail(ErrorCode::kUnsupported,
         "with parallel.zero = {} each of {} workers needs whole gradients in memory. Set "
         "parallel.zero = 2 or 3, where each worker keeps its shard in its own file, or use "
         "offload.gradients = \"host\"",
         options.zero, position.workers);
  }
  fail(ErrorCode::kUnsupported,
       "offload.gradients = \"file\" saves nothing where parallel.no_sync keeps whole "
       "gradients "
       "in memory; leave one of them out");
}

void check_in_place(const nn::Tiers& tiers, const ParallelOptions& options,
                    const WorkerPosition& position) {
  if (tiers.parameters != Tier::kHost) {
    fail(ErrorCode::kInvalidArgument,
         "offload.in_place computes with parameters on the host, but offload.parameters = \"{}\"; "
         "set offload.parameters = \"host\", or leave it out",
         name(tiers.parameters));
  }
  if (position.workers > 1 && options.zero == 3) {
    fail(ErrorCode::kInvalidArgument,
         "offload.in_place uses a block's parameters where they are stored, but with parallel.zero "
         "= 3 each of {} workers holds a shard of them and gathers them on the device; use a lower "
         "stage, or leave it out",
         position.workers);
  }
}

void check_delayed(const nn::Tiers& tiers, const WorkerPosition& position) {
  if (tiers.optimizer != Tier::kHost || tiers.gradients == Tier::kFile) {
    fail(ErrorCode::kInvalidArgument,
         "offload.delayed_update computes the update on the host during the next step; set "
         "offload.optimizer = \"host\" and offload.gradients = \"device\" or \"host\" (they are "
         "\"{}\" and \"{}\"), or leave it out",
         name(tiers.optimizer), name(tiers.gradients));
  }
  if (tiers.in_place || tiers.parameters == Tier::kFile) {
    fail(ErrorCode::kUnsupported,
         "offload.delayed_update makes new parameters while the old ones are computed with, but {} "
         "has one buffer for both; leave one of them out",
         tiers.in_place ? "offload.in_place" : "offload.parameters = \"file\"");
  }
  if (position.workers > 1) {
    fail(ErrorCode::kUnsupported,
         "offload.delayed_update works with one worker; this run has {}. Leave it out",
         position.workers);
  }
}

}  // namespace

void check(const OffloadOptions& offload, const ParallelOptions& options,
           const WorkerPosition& position) {
  const nn::Tiers& tiers = offload.tiers;
  if (tiers.in_place) check_in_place(tiers, options, position);
  if (tiers.delayed_update) check_delayed(tiers, position);
  if (!tiers.any()) return;
  if (options.strategy == StrategyKind::kParameterServer) {
    fail(ErrorCode::kUnsupported,
         "offload.* moves what a worker holds; with parallel.strategy = \"{}\" servers hold the "
         "states. Leave one of them out",
         name(options.strategy));
  }
  if (tiers.parameters == Tier::kFile && tiers.optimizer != Tier::kFile) {
    fail(ErrorCode::kInvalidArgument,
         "offload.parameters = \"file\" needs offload.optimizer = \"file\", because an update "
         "writes both together");
  }
  if (tiers.parameters == Tier::kFile && position.workers > 1 &&
      (options.zero == 1 || options.zero == 2)) {
    fail(ErrorCode::kUnsupported,
         "with parallel.zero = {} every worker gathers all parameters in memory after an update. "
         "Set parallel.zero = 3, where each worker keeps its shard in its own file, or use "
         "offload.parameters = \"host\"",
         options.zero);
  }
  if (tiers.gradients == Tier::kFile) check_filed_gradients(options, position);
  offload.file();
}

io::TierFileOptions OffloadOptions::file() const {
  io::TierFileOptions options;
  std::error_code none;  // creating the file reports what is wrong with its folder
  options.folder = folder.empty() ? std::filesystem::temp_directory_path(none).string() : folder;
  if (bandwidth.empty()) return options;
  try {
    options.bytes_per_second = parse_bytes_per_second(bandwidth);
  } catch (const Error& error) {
    fail(error.code(), "offload.bandwidth: {}", error.what());
  }
  if (options.bytes_per_second <= 0) {
    fail(ErrorCode::kInvalidArgument, "offload.bandwidth = \"{}\": it must be more than 0",
         bandwidth);
  }
  return options;
}

void bind(Config& config, OffloadOptions& options) {
  config.bind("offload.optimizer", options.tiers.optimizer, kTierNames,
              "Where the optimizer's states are stored and the update is computed: device, host "
              "(main memory), or file (in offload.folder; computed on the host).");
  config.bind("offload.gradients", options.tiers.gradients, kTierNames,
              "Where gradients are stored after a block's backward: device, host, or file. With "
              "several workers, file needs parallel.zero = 2 or 3.");
  config.bind(
      "offload.parameters", options.tiers.parameters, kTierNames,
      "Where parameters are stored: device, host, or file (needs offload.optimizer = file). They "
      "are copied to the device block by block, parallel.max_unsharded_blocks at once.");
  config.bind("offload.in_place", options.tiers.in_place,
              "Read parameters directly from host memory instead of copying them to the device: "
              "saves device memory, but every use reads host memory.");
  config.bind("offload.delayed_update", options.tiers.delayed_update,
              "Compute the update of a step on the host during the next step, which uses the "
              "parameters before it (one step stale). Needs a 16-bit train.precision, one worker, "
              "and the optimizer on the host.");
  config.bind("offload.activations", options.tiers.activations, kTierNames,
              "Where the activations that backward needs are stored: device, host or file.");
  config.bind("offload.folder", options.folder,
              "The folder for offloaded files, on a fast disk; empty: in the run's folder.");
  config.bind(
      "offload.overlap", options.tiers.overlaps,
      "Read the next part of an offloaded file and write the previous one during computation, and "
      "update on the host beside backward or the next forward.");
  config.bind("offload.bandwidth", options.bandwidth,
              "Limit the disk to this bandwidth, reads and writes together, like \"500MB/s\"; "
              "empty: as fast as it is.");
}

}  // namespace lockstep::parallel
