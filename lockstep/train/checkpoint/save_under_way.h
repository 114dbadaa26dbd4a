// One running save of a checkpoint, until every worker knows its outcome.
//
// A thread of each writing worker reads the states in place while training continues
// (train/checkpoint/state_reading.h). With sharded states the leader commits the checkpoint when
// all files are on the disk:
//
//   worker 0   | make the folder | write mine            | commit      | notify all
//   worker 1   | learn its name  | write mine     |                    |
//   steps         k | k+1             | k+2       | k+3               | k+4
//
// Workers communicate between steps through the run's group: all of them call look() and wait() in
// the same order. If only the leader writes, only residuals are sent, before the next step, which
// changes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/system/clock.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/background_job.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/residual_exchange.h"
#include "lockstep/train/checkpoint/state_reading.h"
#include "lockstep/train/checkpoint/unfinished.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct SaveOutcome {
  std::optional<std::string> failure;  // why it failed
  double seconds = 0;                  // until its last byte was on the disk
};

class SaveUnderWay {
 public:
  // All but the extras outlive it.
  struct Job {
    nn::Replica& replica;
    parallel::Strategy& strategy;
    const CheckpointFolder& folder;
    RunGroup group;
    CheckpointExtras extras;
    StateSnapshot* snapshot = nullptr;  // of the replica, if there is one
  };
  // Starts a save after a step. Throws Error(kSystem) if nothing can be written, on all workers
  // with sharded states or residuals; and what the communicator throws.
  explicit SaveUnderWay(Job job);
  // Waits for this worker's thread. A checkpoint that the leader writes alone is then complete; a
  // sharded one is not, unless all workers have reported.
  ~SaveUnderWay();
  SaveUnderWay(const SaveUnderWay&) = delete;
  SaveUnderWay& operator=(const SaveUnderWay&) = delete;

  // The outcome, the same on all workers that take part; nothing: it is still running.
  std::optional<SaveOutcome> look();
  SaveOutcome wait();
  // The seconds that updates have waited for it since the last call.
  double take_waited() { return reading_.take_waited(); }

 private:
  bool shares_states() const { return shards_states(job_.replica); }
  void take_residuals(ResidualExchange& residuals);
  void write_states();
  void write_alone();
  void commit(const std::vector<io::FileHash>& states);
  std::string said() const;
  SaveOutcome outcome(std::optional<std::string> failure) const;

  Job job_;
  bool is_agreed_ = false;  // workers exchange outcomes
  bool commits_ = false;    // all files are written
  StateReading reading_;
  std::optional<UnfinishedCheckpoint> checkpoint_;  // of those who write
  std::unique_ptr<io::SyncedFile> residuals_;
  io::FileHash mine_;
  SteadyClock::time_point begin_ = SteadyClock::now();
  double seconds_ = 0;
  std::optional<BackgroundJob> thread_;  // last: it uses the others
};

}  // namespace lockstep::train
