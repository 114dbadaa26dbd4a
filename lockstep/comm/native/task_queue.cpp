#include "lockstep/comm/native/task_queue.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace lockstep {

class TaskQueue::State : public Work::State {
 public:
  bool wait_until(std::chrono::steady_clock::time_point until) override {
    std::unique_lock lock(mutex_);
    if (until == std::chrono::steady_clock::time_point::max()) {
      changed_.wait(lock, [&] { return done_; });
    } else if (until != std::chrono::steady_clock::time_point::min()) {
      changed_.wait_until(lock, until, [&] { return done_; });
    }
    return done_;
  }

  std::optional<Error> error() const override {
    const std::lock_guard lock(mutex_);
    return error_;
  }

  void finish(std::optional<Error> error) {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      error_ = std::move(error);
    }
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::optional<Error> error_;
};

Work TaskQueue::submit(std::function<void()> task) {
  auto state = std::make_shared<State>();
  pending_.fetch_add(1, std::memory_order_acq_rel);
  thread_.push([this, task = std::move(task), state]() mutable {
    std::optional<Error> error;
    try {
      task();
    } catch (const Error& caught) {
      error = caught;
    } catch (const std::exception& caught) {
      error = Error(ErrorCode::kSystem, caught.what());
    }
    task = nullptr;
    pending_.fetch_sub(1, std::memory_order_acq_rel);
    state->finish(std::move(error));
  });
  return Work(state);
}

}  // namespace lockstep
