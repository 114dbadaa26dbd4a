// The model of a checkpoint, as its configuration describes it.
#pragma once

#include "lockstep/nn/flat_parameters.h"
#include "lockstep/nn/model.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

// Throws Error(kInvalidArgument) for a configuration that this build does not understand.
TrainOptions stored_options(const Checkpoint& checkpoint);

// Where the model's parameters lie in a row, whatever the setup.
nn::FlatParameters flat_of(const nn::Model& model);

}  // namespace lockstep::train
