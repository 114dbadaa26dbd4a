// How far the states of a replica have been read into a file, and whoever is to change them waits.
//
// A save reads them from where they lie, block by block, in the order in which updates change
// them, while the next step computes: forward and backward leave them alone. So nothing is copied,
// and an update waits only where it has caught up:
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
  // A trace that hears of waiting, and outlives it.
  explicit StateReading(parallel::Trace& trace) : trace_(trace) {}

  // By the thread that reads: all blocks up to this one have been read. Throws Error(kAborted)
  // after give_up().
  void has_read(std::size_t block);
  // Nothing is read any more, whether all has been or it failed.
  void end();

  // By whoever updates, beside others or not.
  void before_change(std::size_t block) override;
  // What is read is of no use any more.
  void give_up();
  // That it has waited since it was last asked for.
  double take_waited();

 private:
  parallel::Trace& trace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t blocks_ = 0;  // that have been read
  bool ended_ = false;
  bool given_up_ = false;
  const std::thread::id trains_ = std::this_thread::get_id();
  double waited_ = 0;  // seconds; by the thread that trains, not by one beside it
};

}  // namespace lockstep::train
