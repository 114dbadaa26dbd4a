// Texts that a model writes while it is trained, as sample.* has it.
#pragma once

#include <optional>
#include <string>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// Why it cannot; empty: it can.
std::string cannot_sample(const RunOptions& options, const Dataset& dataset);

// Throws Error(kInvalidArgument) for a sample.prompt that has no tokens: before the first step, and
// not when the first sample is due.
void check_prompt(const RunOptions& options, const Dataset& dataset);

// The leader writes one; the others return at once. Where workers shard the parameters they all
// call it, and each gives its own for every pass over the model: nobody ever has all of them.
// Nothing at the others, and where the leader was asked to end before it was done; or, where they
// shard the parameters, any of them.
std::optional<std::string> sample_text(nn::Replica& replica, parallel::Strategy& strategy,
                                       RunGroup group, const data::Tokenizer& tokenizer,
                                       const RunOptions& options, const StopSignal& stop);

}  // namespace lockstep::train
