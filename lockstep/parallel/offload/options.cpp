#include "lockstep/parallel/offload/options.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text/units.h"
#include "lockstep/parallel/strategy/sharding_of.h"

namespace lockstep::parallel {

namespace {

// Whoever adds up whole flat buffers of gradients does so in memory.
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
         "at parallel.zero = {} {} workers reduce whole gradients in memory; with "
         "parallel.zero = 2 or 3 each has its part in a file of its own, or use "
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
         "offload.in_place computes with a block's parameters where they lie, but with "
         "parallel.zero = 3 each of {} workers holds a part of them, and they are gathered on the "
         "device; use a lower stage, or leave it out",
         position.workers);
  }
}

}  // namespace

void check(const OffloadOptions& offload, const ParallelOptions& options,
           const WorkerPosition& position) {
  const nn::Tiers& tiers = offload.tiers;
  if (tiers.in_place) check_in_place(tiers, options, position);
  if (!tiers.any()) return;
  if (options.strategy == StrategyKind::kParameterServer) {
    fail(ErrorCode::kUnsupported,
         "offload.* moves what a worker holds; with parallel.strategy = \"{}\" servers hold the "
         "states. Leave one of them out",
         name(options.strategy));
  }
  if (tiers.parameters == Tier::kFile && tiers.optimizer != Tier::kFile) {
    fail(ErrorCode::kInvalidArgument,
         "offload.parameters = \"file\" goes with offload.optimizer = \"file\": an update writes "
         "both together");
  }
  if (tiers.parameters == Tier::kFile && position.workers > 1 &&
      (options.zero == 1 || options.zero == 2)) {
    fail(ErrorCode::kUnsupported,
         "at parallel.zero = {} every worker has all parameters in memory, where the others' come "
         "to after an update; with parallel.zero = 3 each has its part in a file of its own, or "
         "use offload.parameters = \"host\"",
         options.zero);
  }
  if (tiers.gradients == Tier::kFile) check_filed_gradients(options, position);
  offload.file();
}

io::TierFileOptions OffloadOptions::file() const {
  io::TierFileOptions options;
  std::error_code none;  // whoever makes the file says what is wrong with its folder
  options.folder = folder.empty() ? std::filesystem::temp_directory_path(none).string() : folder;
  if (bandwidth.empty()) return options;
  try {
    options.bytes_per_second = parse_bytes_per_second(bandwidth);
  } catch (const Error& error) {
    fail(error.code(), "offload.bandwidth: {}", error.what());
  }
  if (options.bytes_per_second <= 0) {
    fail(ErrorCode::kInvalidArgument, "offload.bandwidth = \"{}\": nothing would ever arrive",
         bandwidth);
  }
  return options;
}

void bind(Config& config, OffloadOptions& options) {
  config.bind("offload.optimizer", options.tiers.optimizer, kTierNames,
              "Where the optimizer's states lie and the update is computed: device, host (main "
              "memory), or file (in offload.folder; computed on the host).");
  config.bind("offload.gradients", options.tiers.gradients, kTierNames,
              "Where gradients lie once a block's backward has made them: device, host, or file, "
              "with several workers at parallel.zero = 2 and 3.");
  config.bind(
      "offload.parameters", options.tiers.parameters, kTierNames,
      "Where the parameters lie that are computed with; they come to the device block by "
      "block, parallel.max_unsharded_blocks at once. In a file with the optimizer's states.");
  config.bind("offload.in_place", options.tiers.in_place,
              "Compute with parameters on the host where they lie, instead of bringing them to the "
              "device: no room for them there, and every use of them reads the host's memory.");
  config.bind("offload.activations", options.tiers.activations, kTierNames,
              "Where blocks keep what their backward needs: device, host or file.");
  config.bind("offload.folder", options.folder,
              "A folder on a fast disk for what lies in files; empty: in the run's folder.");
  config.bind("offload.overlap", options.tiers.overlaps,
              "Bring the next part of what lies in a file, and take the last away, while one is "
              "worked with.");
  config.bind("offload.bandwidth", options.bandwidth,
              "Pretend that the disk moves no more than this, reads and writes together, like "
              "\"500MB/s\"; empty: as fast as it is.");
}

}  // namespace lockstep::parallel
