// Work on a background thread, whose end can be polled.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::train {

class BackgroundJob {
 public:
  // Starts at once; if no thread can be started, it has failed.
  explicit BackgroundJob(std::function<void()> work);
  // Waits for its end.
  ~BackgroundJob() { wait(); }
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  // Whether it has ended; one load.
  bool done() const { return done_.load(std::memory_order_acquire); }
  // After the end: the error of the work, if any.
  const std::optional<Error>& failure() const { return failure_; }
  // Waits for its end. One thread at a time.
  void wait();

 private:
  std::optional<Error> failure_;
  std::atomic<bool> done_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::train
