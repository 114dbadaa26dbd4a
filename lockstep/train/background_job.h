// Work in a thread of its own, whose end somebody else looks for.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::train {

class BackgroundJob {
 public:
  // Begins at once; or has failed, where no thread can be started.
  explicit BackgroundJob(std::function<void()> work);
  // Waits for its end.
  ~BackgroundJob() { wait(); }
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  // Whether it has ended; costs nothing.
  bool done() const { return done_.load(std::memory_order_acquire); }
  // When it has: what the work threw, nothing where it went well.
  const std::optional<Error>& failure() const { return failure_; }
  // Returns when it has. By one thread.
  void wait();

 private:
  std::optional<Error> failure_;
  std::atomic<bool> done_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::train
