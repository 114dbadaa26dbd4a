// A Work is an operation under way. Copies refer to the same operation.
//
// Dropping a Work does not stop the operation; its buffers must live until it is done.
// Any thread may ask; an error that happened in the background is thrown by wait().
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
    // Waits until the operation has ended, well or not, or `until` has come; says whether it ended.
    virtual bool wait_until(std::chrono::steady_clock::time_point until) = 0;
    // The error of an operation that ended badly.
    virtual std::optional<Error> error() const = 0;
  };

  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // True once the operation has ended, well or not. Never blocks.
  bool done() const { return state_->wait_until(std::chrono::steady_clock::time_point::min()); }

  // Waits for the end (the communicator's own deadline bounds it); throws the operation's error.
  void wait() const {
    state_->wait_until(std::chrono::steady_clock::time_point::max());
    if (auto error = state_->error()) throw *error;
  }

  // Like wait(), but gives up after `timeout` and says false: the operation goes on.
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
