// The model of a checkpoint or of Hugging Face's, as its configuration describes it.
#pragma once

#include "lockstep/nn/hugging_face/config.h"
#include "lockstep/nn/model.h"
#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// Throws Error(kInvalidArgument) for a configuration that this build does not understand.
TrainOptions stored_options(const Checkpoint& checkpoint);

// Throws Error(kInvalidArgument) for sizes that no model of lockstep has.
ModelChoice choice_of(const nn::HuggingFaceConfig& config);

// Where the model's parameters lie in a flat buffer, whatever the setup.
nn::FlatParameters flat_of(const nn::Model& model);

}  // namespace lockstep::train
