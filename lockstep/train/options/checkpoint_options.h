// When checkpoints are written and how many are kept.
#pragma once

#include "lockstep/base/config/config.h"

namespace lockstep::train {

struct CheckpointOptions {
  int every = 1000;        // steps; 0: only at the end, and when the run is interrupted
  int keep_last = 2;       // how many of the newest are kept
  int keep_best = 0;       // how many with the lowest validation losses are kept besides; 0: none
  int keep_every = 0;      // those at multiples of this step are never removed; 0: none
  bool async_save = true;  // written while training continues; the run waits for its last one
};
// Declares the keys checkpoint.*.
void bind(Config& config, CheckpointOptions& options);

}  // namespace lockstep::train
