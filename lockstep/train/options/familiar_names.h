// Settings by the names that other trainers have for them: those of Hugging Face's Trainer
// (learning_rate, per_device_train_batch_size, ...), of DeepSpeed's configuration
// (train_batch_size, optimizer.params.lr, fp16.enabled, ...), of nanoGPT and of llm.c (n_layer,
// batch_size, max_iters, ...). Their files may be JSON; a value "auto" leaves a setting as it is.
//
// A name has an effect, or is refused with the reason, or does not affect the result.
// Config::ignored() lists the names of the last kind.
#pragma once

#include "lockstep/base/config/config.h"

namespace lockstep::train {

// After the keys are bound.
void accept_familiar_names(Config& config);

namespace familiar {

// Those of nanoGPT and llm.c that need a translation; accept_familiar_names() calls it.
void accept_nanogpt_names(Config& config);

}  // namespace familiar

}  // namespace lockstep::train
