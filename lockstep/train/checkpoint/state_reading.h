// Tracks how far a save has read the states of a replica; updates wait for it.
//
// A save reads the states in place, block by block, in the order of updates, while the next step
// runs forward and backward, which do not change them. So nothing is copied, and an update waits
// only if it catches up:
//
//   training   | forward       | backward                 | update 0, 1, 2, ...
//   the save   | read 0 | read 1 | read 2 | ...   | sync, commit
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

#include "lockstep/nn/replica/state_reader.h"
#include "lockstep/parallel/trace/trace.h"

namespace lockstep::train {

class StateReading final : public nn::StateReader {
 public:
  // Waits are recorded in `trace`, which must outlive it.
  explicit StateReading(parallel::Trace& trace) : trace_(trace) {}

  // Called by the reading thread: all blocks up to this one have been read. Throws Error(kAborted)
  // after give_up().
  void has_read(std::size_t block);
  // The save has ended, successfully or not.
  void end();

  // Called before an update, by any thread.
  void before_change(std::size_t block) override;
  // Cancels the save.
  void give_up();
  // The seconds waited since the last call.
  double take_waited();

 private:
  parallel::Trace& trace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t blocks_ = 0;  // that have been read
  bool ended_ = false;
  bool given_up_ = false;
  const std::thread::id trains_ = std::this_thread::get_id();
  double waited_ = 0;  // seconds, of the training thread only
};

}  // namespace lockstep::train
