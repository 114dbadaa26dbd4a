// Texts that a model writes while it is trained, as sample.* has it.
#pragma once

#include <string>

#include "lockstep/nn/replica.h"
#include "lockstep/train/batch_source.h"
#include "lockstep/train/run_options.h"

namespace lockstep::train {

// Why it cannot; empty: it can.
std::string cannot_sample(const RunOptions& options, const Dataset& dataset);

// Throws Error(kInvalidArgument) for a sample.prompt that has no tokens: before the first step, and
// not when the first sample is due.
void check_prompt(const RunOptions& options, const Dataset& dataset);

std::string sample_text(nn::Replica& replica, const data::Tokenizer& tokenizer,
                        const RunOptions& options);

}  // namespace lockstep::train
