#include "lockstep/comm/native/task_queue.h"

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

TaskQueue::~TaskQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Work TaskQueue::submit(std::function<void()> task) {
  auto state = std::make_shared<State>();
  {
    const std::lock_guard lock(mutex_);
    pending_.fetch_add(1, std::memory_order_acq_rel);
    items_.push_back({std::move(task), state});
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  }
  changed_.notify_one();
  return Work(state);
}

void TaskQueue::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !items_.empty(); });
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    std::optional<Error> error;
    try {
      item.task();
    } catch (const Error& caught) {
      error = caught;
    } catch (const std::exception& caught) {
      error = Error(ErrorCode::kSystem, caught.what());
    }
    item.task = nullptr;
    pending_.fetch_sub(1, std::memory_order_acq_rel);
    item.state->finish(std::move(error));
    lock.lock();
  }
}

}  // namespace lockstep
