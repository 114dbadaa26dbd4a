// How a run begins with what an earlier one left, and leaves what the next can go on from: its
// checkpoints, of one worker or of all that shard their states, with what error feedback has
// kept back. Called by all workers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/train/background_job.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/save_under_way.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

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
    const std::string& data;                                        // its fingerprint
    const std::shared_ptr<const data::Tokenizer>& model_tokenizer;  // of what it begins with
    parallel::Strategy& strategy;
    Trainer& trainer;
  };
  explicit RunSaving(const Parts& parts) : parts_(parts) {}
  // Where a save is under way, since the run ends by an error, the strategy leaves: its threads may
  // wait for what is being read.
  ~RunSaving();
  RunSaving(const RunSaving&) = delete;
  RunSaving& operator=(const RunSaving&) = delete;

  // Starts the trainer with the newest checkpoint, or with what run.init_from has. Whether there
  // was a checkpoint.
  bool start();

  // Begins to save what is now; waits for an earlier one that is still being written, and with
  // checkpoint.async_save = false for this one. A full disk does not end a run: what was saved
  // before is still there.
  void save();
  // After each step: whether the one that was begun has come to its end.
  void look();
  // Waits for that.
  void finish();
  // The parameters after `step` steps have given a finite loss. Only then are checkpoints removed
  // that those of `step` and less replace: one whose loss turns out NaN replaces none.
  void found_finite(std::int64_t step);
  // A step was done since.
  void changed() { saved_ = is_current_ = false; }
  // Whether what is now has been saved; when finish() was called.
  bool saved() const { return saved_; }
  // Throws where the last save failed: what is not saved in the end is lost, however well it went.
  void check_saved();

  // All of these since they were last asked for. In which no step went on, update's waiting
  // included:
  double take_stalled();
  // Of these, what updates waited, which is a part of their steps:
  double take_waited();
  // Of saves that came to their end, from their begin, where steps went on meanwhile.
  double take_background();

 private:
  bool shares_states() const { return parts_.trainer.replica().plan().sharding.any(); }
  std::optional<TrainState> restore(RunGroup readers) const;
  std::optional<TrainState> restore_states(nn::Replica& replica, const Warn& warn,
                                           RunGroup readers) const;
  void restore_residuals(std::int64_t step);
  void begin();
  void conclude(const SaveOutcome& outcome);
  CheckpointExtras extras();
  void tell_failure(std::int64_t step, std::string_view why);
  void remove_replaced();
  void finish_removal();

  Parts parts_;
  std::unique_ptr<SaveUnderWay> under_way_;
  std::int64_t step_ = 0;    // of that
  bool is_current_ = false;  // it is of what is now
  bool saved_ = false;       // what is now
  bool told_of_waiting_ = false;
  std::int64_t finite_ = -1;              // the last step whose parameters gave a finite loss
  std::optional<std::int64_t> replaces_;  // the newest checkpoint, while earlier ones wait for it
  std::optional<BackgroundJob> removal_;  // the leader's
  std::string tokenizer_;                 // of all checkpoints, made with the first
  double stalled_ = 0;                    // seconds, as the next
  double background_ = 0;
};

}  // namespace lockstep::train
