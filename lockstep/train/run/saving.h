// Restores and saves the checkpoints of a run, of one worker or of all with sharded states,
// including residuals. Called by all workers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/train/background_job.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/save_under_way.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/run/mirror.h"
#include "lockstep/train/run/survival.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

class RunSaving {
 public:
  // The parts of a run; all must outlive this.
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
    Survival* survival = nullptr;  // of a worker that outlives the loss of others
  };
  explicit RunSaving(const Parts& parts) : parts_(parts) {}
  // If a save is running, because the run ends with an error, the strategy leaves first: its
  // threads may wait for the save.
  ~RunSaving();
  RunSaving(const RunSaving&) = delete;
  RunSaving& operator=(const RunSaving&) = delete;

  // Starts the trainer with the states that a worker has kept, or with the newest checkpoint, or
  // with what run.init_from has.
  enum class Began : std::uint8_t { kAtFirst, kFromCheckpoint, kFromWorker };
  Began start();
  // Where it began from a worker: that one.
  const std::optional<Source>& source() const { return source_; }

  // Starts a save of the current state; waits for an earlier one that is still being written, and
  // with checkpoint.async_save = false for this one. A full disk does not end a run: earlier
  // checkpoints stay.
  void save();
  // The current state, unless that is saved already, and waits for it.
  void save_current();
  // Shards are compared with these, too, from now on. It outlives the last save.
  void set_mirror(Mirror& mirror) { mirror_ = &mirror; }
  // Compares the workers of a run in lockstep (Strategy::compare_workers()), and shards with their
  // mirrors (Mirror::compare()). Where they differ the
  // error also names the newest checkpoint that is known to be clean. save() does it too: what
  // follows a divergence is not saved.
  std::string compare_workers(bool whole);
  void compare_if_due();  // every parallel.check_every steps
  // Called after each step: polls the running save.
  void look();
  // Waits for that.
  void finish();
  // The parameters after `step` steps have given a finite loss. Only then are checkpoints removed
  // that those of `step` and less replace: one whose loss turns out NaN replaces none.
  void found_finite(std::int64_t step);
  // The validation loss of the current state; nothing, or what is not finite: none. Every
  // checkpoint of this state has it in its manifest. Returns whether it is among the lowest
  // checkpoint.keep_best of the run and not saved with its state yet. Called by all workers, which
  // get the leader's answer.
  bool found_validation(std::optional<double> loss);
  // A step was done since.
  void changed() { saved_ = is_current_ = false; }
  // Whether the current state is saved; valid after finish().
  bool saved() const { return saved_; }
  // Throws where the last save failed: what is not saved in the end is lost, however well it went.
  void check_saved();

  // Seconds since the last call. During which training was stalled, including waits of updates:
  double take_stalled();
  // Of these, the waits of updates, which are part of their steps:
  double take_waited();
  // The durations of completed background saves.
  double take_background();

 private:
  bool start_from_worker();
  bool take_states();
  bool take_shards(std::int64_t newest_checkpoint);
  std::int64_t newest_checkpoint();
  bool shares_states() const { return shards_states(parts_.trainer.replica()); }
  std::optional<TrainState> restore(RunGroup readers) const;
  std::optional<TrainState> restore_states(nn::Replica& replica, const Warn& warn,
                                           RunGroup readers) const;
  void restore_residuals(std::int64_t step);
  void find_best();
  std::optional<double> loss_to_save();
  void make_snapshot();
  void begin();
  void conclude(const SaveOutcome& outcome);
  CheckpointExtras extras();
  std::string newest_unchanged() const;
  void tell_failure(std::int64_t step, std::string_view why);
  void remove_replaced();
  void finish_removal();

  Parts parts_;
  Mirror* mirror_ = nullptr;
  std::unique_ptr<StateSnapshot> snapshot_;  // where saves need one
  std::unique_ptr<SaveUnderWay> under_way_;
  std::optional<Source> source_;
  std::int64_t step_ = 0;    // of that
  bool is_current_ = false;  // it is of what is now
  bool saved_ = false;       // what is now
  bool told_of_waiting_ = false;
  std::int64_t finite_ = -1;              // the last step whose parameters gave a finite loss
  std::optional<std::int64_t> replaces_;  // the newest checkpoint, while earlier ones wait for it
  std::optional<CheckpointFolder::Validated> validated_;  // the last state with a loss
  std::vector<CheckpointFolder::Validated> with_loss_;    // checkpoints, the leader's
  std::optional<BackgroundJob> removal_;                  // the leader's
  std::string fingerprint_;                               // of what is being saved
  std::string tokenizer_;                                 // of all checkpoints, made with the first
  double stalled_ = 0;                                    // seconds, as the next
  double background_ = 0;
};

}  // namespace lockstep::train
