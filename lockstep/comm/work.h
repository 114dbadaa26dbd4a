// A handle of an operation that was started. Copies refer to the same operation.
//
// Dropping a Work does not stop the operation; its buffers must live until it is done. Thread-safe.
// wait() throws the error of the operation.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep {

class Work {
 public:
  // What an implementation provides.
  class State {
   public:
    virtual ~State() = default;
    // Waits until the operation has ended, successfully or not, or until `until`; returns whether
    // it ended.
    virtual bool wait_until(std::chrono::steady_clock::time_point until) = 0;
    // The error of an operation that failed.
    virtual std::optional<Error> error() const = 0;
  };

  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // True once the operation has ended, successfully or not. Never blocks.
  bool done() const { return state_->wait_until(std::chrono::steady_clock::time_point::min()); }

  // Waits for the end (the communicator's own deadline bounds it); throws the operation's error.
  void wait() const {
    state_->wait_until(std::chrono::steady_clock::time_point::max());
    if (auto error = state_->error()) throw *error;
  }

  // Like wait(), but returns false after `timeout`; the operation continues.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds timeout) const {
    if (!state_->wait_until(std::chrono::steady_clock::now() + timeout)) return false;
    if (auto error = state_->error()) throw *error;
    return true;
  }

  std::optional<Error> error() const { return state_->error(); }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
