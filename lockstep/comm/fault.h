// The first error of a communicator. After it is reported, every operation of the communicator ends
// with it. Thread-safe; a check is one relaxed load.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

class Fault {
 public:
  // Keeps the error unless one was reported before; returns whether it was kept.
  bool report(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (error_) return false;
    error_ = own_copy(error);
    present_.store(true, std::memory_order_release);
    reported_.notify_all();
    return true;
  }

  bool present() const { return present_.load(std::memory_order_acquire); }

  std::optional<Error> error() const {
    const std::lock_guard lock(mutex_);
    if (!error_) return std::nullopt;
    return own_copy(*error_);
  }

  // Waits for an error; returns whether one was reported.
  bool wait_for(std::chrono::nanoseconds timeout) const {
    std::unique_lock lock(mutex_);
    return reported_.wait_for(lock, timeout, [&] { return error_.has_value(); });
  }

  void throw_if_present() const {
    if (present()) throw *error();
  }

 private:
  // Copies of an exception share its text, whose holders the standard library counts where the
  // thread sanitizer does not see it. Errors that go from thread to thread have texts of their own.
  static Error own_copy(const Error& error) {
    return {error.code(), std::string(error.what()), error.ranks(), error.where()};
  }

  std::atomic<bool> present_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable reported_;
  std::optional<Error> error_;
};

}  // namespace lockstep
