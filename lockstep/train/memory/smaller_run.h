// Settings of the same training that take less memory.
//
// What may be set otherwise, and in which order that is tried:
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
// The first line changes fastest. Each of these that goes together is a *setting*. That nothing
// fits is told only where none of them does: they are thousands, but its flat buffers alone, or a
// plan without places (nn/memory/memory_plan.h), tell that a setting is too large, and what is too
// large with the smallest micro-batch is so with larger ones.
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

// What may be set otherwise.
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

// Whether a run with these would not be refused for settings that exclude each other.
bool goes_together(const TrainOptions& options);

// Whether a part lies in a file in `tiers` that does not in `present`.
bool has_more_files(const nn::Tiers& present, const nn::Tiers& tiers);

// False: these do not fit into `limit` bytes (0: any) and on the device into options.device_limit,
// whatever an open recomputation chooses. Takes a fraction of a plan's time.
bool may_fit(const TrainOptions& options, const Ops& ops, std::size_t limit, int worker = 0);

// The first setting, in the order above, that fits into `limit` bytes (0: any) and on the device
// into options.device_limit. Where none does: the one that is over them by the fewest bytes, both
// together; of equal ones that which takes least. So with one limit nothing takes less of what it
// limits. Throws what check() throws where nothing goes together.
SmallerRun nearest_run(const TrainOptions& options, const Ops& ops, std::size_t limit,
                       int worker = 0, const OpenSettings& open = {});

}  // namespace lockstep::train
