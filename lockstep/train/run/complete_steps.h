// One call of a trainer in a run, and the steps that are complete after it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/step_batches.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// Whether a step ends with all updates made and nothing of the next one: what comes after it, a
// validation, a checkpoint or a sample, is of its parameters.
bool is_complete_after(const RunOptions& options, std::int64_t step);

// Computes this worker's share of a step. Returns the steps that are complete then: this one, or
// where updates are late (Trainer::step_late) up to two, or none yet. Nothing where a worker stops.
std::optional<std::vector<StepMetrics>> complete_steps(Trainer& trainer, StepBatches& batches,
                                                       const RunOptions& options,
                                                       std::span<const nn::Batch> micro_batches,
                                                       const parallel::Share& share, bool stops);

}  // namespace lockstep::train
