#include "lockstep/train/options/survive_options.h"

namespace lockstep::train {

void bind(Config& config, SurviveOptions& options) {
  config.bind(
      "survive.mirror", options.mirror,
      "Whether every worker's shard is mirrored in the memory of another worker, on another "
      "node where there are several, so that a job with parallel.zero continues in memory "
      "when a rank dies. Takes the memory of three shards on each worker.");
  config.bind(
      "survive.hang_timeout", options.hang_timeout,
      "How long ranks wait for one that does not answer before it is killed and started "
      "again, where ranks are (--max-restarts); auto: comm.timeout, which is also the most. "
      "Longer than what one rank does while others wait, as writing a checkpoint with "
      "checkpoint.async_save = false.");
}

}  // namespace lockstep::train
