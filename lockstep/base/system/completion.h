// The end of something that runs on another thread, and the error it ended with.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace lockstep {

// `E` is the type of the error; a default-constructed one means none. Thread-safe.
template <class E>
class Completion {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // To be called once.
  void finish(E error) {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      error_ = std::move(error);
    }
    changed_.notify_all();
  }

  // Waits for the end or until `until`: max() waits without a limit, min() does not wait. Returns
  // whether it has ended.
  bool wait_until(TimePoint until = TimePoint::max()) const {
    std::unique_lock lock(mutex_);
    if (until == TimePoint::max()) {
      changed_.wait(lock, [&] { return done_; });
    } else if (until != TimePoint::min()) {
      changed_.wait_until(lock, until, [&] { return done_; });
    }
    return done_;
  }
  bool done() const { return wait_until(TimePoint::min()); }

  E error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  // Like error(), but moves the error to the caller.
  E take_error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(error_, E());
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  E error_{};
};

}  // namespace lockstep
