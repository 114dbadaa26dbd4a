#include "lockstep/train/options/checkpoint_options.h"

namespace lockstep::train {

void bind(Config& config, CheckpointOptions& options) {
  config.bind("checkpoint.every", options.every,
              "Steps between checkpoints; 0: only at the end, and when the run is interrupted.",
              {.min = 0});
  config.bind("checkpoint.keep_last", options.keep_last, "The newest so many checkpoints stay.",
              {.min = 1});
  config.bind("checkpoint.keep_every", options.keep_every,
              "Checkpoints of steps that this divides stay for good; 0: none.", {.min = 0});
  config.bind("checkpoint.overlap", options.overlap,
              "Write checkpoints while steps go on; the last one of a run is waited for.");
}

}  // namespace lockstep::train
