// How a run begins with what an earlier one left, and leaves what the next can go on from: its
// checkpoints, of one worker or of all that share out their states, with what error feedback has
// kept back. Called by all workers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/data/tokenizer.h"
#include "lockstep/train/audience.h"
#include "lockstep/train/batch_source.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/run_group.h"
#include "lockstep/train/run_options.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {

class RunSaving {
 public:
  // What a run consists of; all of it outlives this.
  struct Parts {
    const RunOptions& options;
    const Config& config;
    const Audience& audience;
    RunGroup group;
    CheckpointFolder& checkpoints;
    const Dataset& dataset;
    const std::shared_ptr<const data::Tokenizer>& model_tokenizer;  // of what it begins with
    parallel::Strategy& strategy;
    Trainer& trainer;
  };
  explicit RunSaving(const Parts& parts) : parts_(parts) {}

  // Starts the trainer with the newest checkpoint, or with what run.from has. Whether there was a
  // checkpoint.
  bool start();

  // A full disk does not end a run: what was saved before is still there.
  void save();
  // A step was done since.
  void changed() { saved_ = false; }
  bool saved() const { return saved_; }
  // Throws where the last save failed: what is not saved in the end is lost, however well it went.
  void check_saved() const;
  // Since it was last asked for.
  double take_seconds();

 private:
  bool shares_states() const { return parts_.trainer.replica().plan().sharding.any(); }
  std::optional<TrainState> restore(RunGroup readers) const;
  void restore_residuals(std::int64_t step);
  void write(class ResidualExchange& residuals);

  Parts parts_;
  bool saved_ = false;  // what is now
  double seconds_ = 0;
};

}  // namespace lockstep::train
