// Generates samples during training (sample.*).
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

// The leader generates one; the others return at once. With sharded parameters all workers call it
// and provide their shards for every pass over the model. Returns nothing on the others, and if the
// leader (with sharded parameters: any worker) was asked to stop.
std::optional<std::string> sample_text(nn::Replica& replica, parallel::Strategy& strategy,
                                       RunGroup group, const data::Tokenizer& tokenizer,
                                       const RunOptions& options, const StopSignal& stop);

}  // namespace lockstep::train
