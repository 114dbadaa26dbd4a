// Our side of the training bench, in processes of its own like the peers': then what they take can
// be compared. Requests and answers are those of peers/train_pytorch.py.
#pragma once

#include "lockstep/train/options/options.h"

namespace lockstep::bench {

// Trains on synthetic tokens: step, reset, usage, and profile, a step by its operations.
void serve_training(const train::TrainOptions& options);
// Times matrix products: gemm.
void serve_products(const train::TrainOptions& options);

}  // namespace lockstep::bench
