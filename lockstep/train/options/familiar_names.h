// Settings by the names that other trainers have for them: those of Hugging Face's Trainer
// (learning_rate, per_device_train_batch_size, ...) and of DeepSpeed's configuration
// (train_batch_size, optimizer.params.lr, fp16.enabled, ...). Their files may be JSON; a value
// "auto" leaves a setting as it is.
#pragma once

#include "lockstep/base/config/config.h"

namespace lockstep::train {

// Call it after the keys are bound. Names without a counterpart stay unknown, so that they are an
// error and never ignored.
void accept_familiar_names(Config& config);

}  // namespace lockstep::train
