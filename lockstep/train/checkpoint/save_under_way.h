// One checkpoint of a run, from the moment it is due until every worker knows what became of it.
//
// A worker that writes has a thread for it, which reads the states from where they lie while steps
// go on (train/checkpoint/state_reading.h). Where each worker writes what it holds the leader
// completes the checkpoint when all files are on the disk:
//
//   worker 0   | make the folder | write mine            | commit      | told to all
//   worker 1   | hear of it      | write mine     |                    |
//   steps         k | k+1             | k+2       | k+3               | k+4
//
// What workers have to tell each other goes between steps, through the run's own group: look() and
// wait() are called by all of them in the same order. Where the leader alone writes nothing is sent
// but what gradients' residuals need, which are taken before the first step goes on: it changes
// them.
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
  std::optional<std::string> failure;  // why it is not there
  double seconds = 0;                  // until the last byte of it was on the disk
};

class SaveUnderWay {
 public:
  // All but the last outlive it.
  struct Job {
    nn::Replica& replica;
    parallel::Strategy& strategy;
    const CheckpointFolder& folder;
    RunGroup group;
    CheckpointExtras extras;
  };
  // After a step: begins. Throws Error(kSystem) where nothing can be written, at all workers that
  // shard their states or have residuals; and what the communicator throws.
  explicit SaveUnderWay(Job job);
  // Waits for what this worker does. What the leader writes alone is then there; where the others
  // have not told it of theirs, nothing is.
  ~SaveUnderWay();
  SaveUnderWay(const SaveUnderWay&) = delete;
  SaveUnderWay& operator=(const SaveUnderWay&) = delete;

  // What became of it, the same at all workers that have a part in it; nothing: it goes on.
  std::optional<SaveOutcome> look();
  SaveOutcome wait();
  // That updates have waited for it, since it was last asked for.
  double take_waited() { return reading_.take_waited(); }

 private:
  bool shares_states() const { return job_.replica.plan().sharding.any(); }
  void take_residuals(ResidualExchange& residuals);
  void write_states();
  void write_alone();
  void commit(const std::vector<io::FileHash>& states);
  std::string said() const;
  SaveOutcome outcome(std::optional<std::string> failure) const;

  Job job_;
  bool is_agreed_ = false;  // workers tell each other
  bool commits_ = false;    // all files are there
  StateReading reading_;
  std::optional<UnfinishedCheckpoint> checkpoint_;  // of those who write
  std::unique_ptr<io::SyncedFile> residuals_;
  io::FileHash mine_;
  SteadyClock::time_point begin_ = SteadyClock::now();
  double seconds_ = 0;
  std::optional<BackgroundJob> thread_;  // last: it uses the others
};

}  // namespace lockstep::train
