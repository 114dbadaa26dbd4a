#include "lockstep/train/options/checkpoint_options.h"

namespace lockstep::train {

void bind(Config& config, CheckpointOptions& options) {
  config.bind("checkpoint.every", options.every,
              "Steps between checkpoints; 0: only at the end, and when the run is interrupted.",
              {.min = 0});
  config.bind("checkpoint.keep_last", options.keep_last,
              "How many of the newest checkpoints are kept.", {.min = 1});
  config.bind("checkpoint.keep_best", options.keep_best,
              "How many checkpoints with the lowest validation losses are kept besides. A "
              "validation that is among them is saved; 0: none.",
              {.min = 0});
  config.bind("checkpoint.keep_every", options.keep_every,
              "Checkpoints at multiples of this step are never removed; 0: none.", {.min = 0});
  config
      .bind("checkpoint.async_save", options.async_save,
            "Write checkpoints while training continues; the run waits for its last one.")
      .formerly("checkpoint.overlap");
}

}  // namespace lockstep::train
