// Settings by the names that other trainers have for them: those of Hugging Face's Trainer
// (learning_rate, per_device_train_batch_size, ...) and of DeepSpeed's configuration
// (train_batch_size, optimizer.params.lr, fp16.enabled, ...). Their files may be JSON; a value
// "auto" leaves a setting as it is.
#pragma once

#include "lockstep/base/config/config.h"

namespace lockstep::train {

// After the keys are bound. What there is no key for here (logging folders, pinned memory) is left
// unknown, so that it is named instead of silently dropped.
void accept_familiar_names(Config& config);

}  // namespace lockstep::train
