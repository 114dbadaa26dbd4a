// Chooses settings by the available memory (memory.auto, train.recompute = "auto").
//
// memory.auto chooses among stages of ZeRO, micro-batches that divide the step, recomputation block
// by block, and where the device has a limit the tiers that states and activations lie in; where
// nothing of that fits, among all of it with more in files. On a GPU tiers are not open. Of all
// that fit it takes the one whose step loses least time, reckoned as
//
//   FLOPs of a worker, those done again included                              / rates.flops
//   + bytes that it sends                                                     / rates.link
//   + bytes that go to the host and come back                                 / rates.host
//   + bytes that go to files and come back                                    / rates.file
//   + a pass over parameters and gradients for each micro-batch, in bytes     / rates.memory
//
// The rates are those of a worker of some cores, or of a GPU, by order of magnitude; only their
// proportions decide. Where two lose the same the lower stage is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/train/memory/smaller_run.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// Per second.
struct StepRates {
  double flops = 1e11;
  double link = 5e9;
  double host = 5e9;
  double file = 1e9;
  double memory = 2e10;
};
StepRates rates_of(Device device);

// The bytes that one worker may allocate: memory.limit if it is set; otherwise its share of nine
// tenths of this machine's free memory, or on a GPU the limit of a plan there
// (train/memory/run_plan.h). 0 if it is unknown.
std::size_t memory_budget(const TrainOptions& options, Device device, int workers_here);

// With train.recompute = "auto" and nothing chosen yet: chooses the recompute mode of each block,
// the cheapest that fits into the budget and options.device_limit (nn/memory/recompute_search.h);
// or the smallest if none fits: then check_budget() throws. Without limits (0) nothing is
// recomputed. Workers of a run that are given the same budget choose the same.
void settle_recompute(TrainOptions& options, const Ops& ops, std::size_t budget);

// Throws as check_limit() (train/memory/run_plan.h) does, with the budget as the limit if options
// have none.
void check_budget(const TrainOptions& options, const Ops& ops, std::size_t budget);

// The settings that are not set.
OpenSettings open_settings(const Config& config);

// The estimated cost of a worker's step, as above.
struct StepCost {
  double flops = 0;                   // in all
  double recomputed = 0;              // of these
  std::optional<std::uint64_t> sent;  // bytes, where that is known
  double moved = 0;                   // bytes to the host and back
  double filed = 0;                   // bytes to files and back
  double passed_over = 0;             // bytes
  StepRates rates;
  double seconds() const {
    return flops / rates.flops + static_cast<double>(sent.value_or(0)) / rates.link +
           moved / rates.host + filed / rates.file + passed_over / rates.memory;
  }
};
// `options` have their recomputation settled.
StepCost step_cost(const TrainOptions& options, const Ops& ops);

// A choice of settings and its memory.
struct MemoryChoice {
  TrainOptions options;
  bool fits = false;         // false: nothing fits; these come closest (train/memory/smaller_run.h)
  bool is_quickest = false;  // no faster choice was rejected
  std::size_t bytes = 0;
  std::size_t device_bytes = 0;  // of these, on the device
  StepCost cost;
};
// Chooses the open settings, but never the type of gradients. Throws what check() of
// train/options/options.h throws if no combination is valid.
MemoryChoice choose_memory(const TrainOptions& options, const OpenSettings& open, const Ops& ops,
                           std::size_t budget);

// "parallel.zero = 2, train.micro_batch_size = 4, recomputes full in layer.0: takes 1.9 GiB of 2
// GiB,
// ...", for people.
std::string text(const MemoryChoice& choice, std::size_t budget);

}  // namespace lockstep::train
