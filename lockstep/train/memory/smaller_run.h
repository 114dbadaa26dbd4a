// Finds settings of the same training that need less memory.
//
// What may change, and in which order it is tried:
//
//   tiers        as they are; on the host where the device has a limit; back on the device where
//                all of memory has one. One part, then two, ...; the optimizer first, then
//                gradients, parameters, activations
//   ZeRO         the present stage, higher ones, lower ones, where there are workers to share with
//   recompute    the present, more, less
//   micro-batch  the present and every smaller one that divides the step, which keeps its sequences
//   gradients    the present type, then that of the compute type
//   files        all of this once more, with parts in files, where all of memory has a limit
//
// The first line changes fastest. Each valid combination is a *setting*. There are thousands of
// them, but flat buffers alone, or a plan without offsets (nn/memory/memory_plan.h), show that most
// are too large; and what is too large with the smallest micro-batch is too large with larger ones.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "lockstep/nn/parameters/tiers.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// What has a tier of its own, in the order in which it is moved.
inline constexpr std::array kTierParts{&nn::Tiers::optimizer, &nn::Tiers::gradients,
                                       &nn::Tiers::parameters, &nn::Tiers::activations};

// What may change.
struct OpenSettings {
  bool zero = true;
  bool recompute = true;
  bool micro_batch = true;
  bool tiers = true;
  bool gradients = true;  // their type: never chosen by memory.auto, since it changes bits
};

// Such settings, and what they take.
struct SmallerRun {
  int zero = 0;
  RecomputeChoice recompute = RecomputeChoice::kNone;
  BatchChoice batch;
  GradientChoice gradient_dtype = GradientChoice::kAuto;
  nn::Tiers tiers;
  bool fits = false;
  std::size_t bytes = 0;
  std::size_t device_bytes = 0;  // of these, on the device
};
// With the settings of `change`; its recomputation is not settled yet.
TrainOptions with(TrainOptions options, const SmallerRun& change);

// The same step in micro-batches of the present size and of every smaller one that divides it.
std::vector<BatchChoice> micro_batches(const BatchChoice& batch);

// Whether the settings are valid together.
bool goes_together(const TrainOptions& options);

// Whether a part lies in a file in `tiers` that does not in `present`.
bool has_more_files(const nn::Tiers& present, const nn::Tiers& tiers);

// False: these do not fit into `limit` bytes (0: any) and options.device_limit with any
// recomputation. Takes a fraction of the time of a plan.
bool may_fit(const TrainOptions& options, const Ops& ops, std::size_t limit, int worker = 0);

// The first setting, in the order above, that fits into `limit` bytes (0: any) and on the device
// into options.device_limit. If none does: the one that exceeds both by the fewest bytes in sum; of
// equal ones the smallest. Throws what check() throws if no combination is valid.
SmallerRun nearest_run(const TrainOptions& options, const Ops& ops, std::size_t limit,
                       int worker = 0, const OpenSettings& open = {});

}  // namespace lockstep::train
