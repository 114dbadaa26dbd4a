#include "lockstep/tensor/cpu_queue.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/task_thread.h"

namespace lockstep {
namespace {

class Mark final : public Event::State {
 public:
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }

  std::exception_ptr await() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return error_;
  }

  // Like await(), but the error becomes the caller's alone.
  std::exception_ptr take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return std::exchange(error_, nullptr);
  }

  void finish(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      error_ = std::move(error);
    }
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
};

class CpuQueue final : public Stream::Queue {
 public:
  void run(std::function<void()> task) override {
    thread_.push([this, task = std::move(task)] {
      if (error_ != nullptr) return;
      try {
        task();
      } catch (...) {
        error_ = std::current_exception();
      }
    });
  }

  Event record() override {
    auto mark = std::make_shared<Mark>();
    thread_.push([this, mark] { mark->finish(error_); });
    return Event(std::move(mark));
  }

  void wait(const Event& event) override {
    // An error is taken over even from an event that has come, in its place among the tasks.
    if (event.done() && event.await() == nullptr) return;
    thread_.push([this, event] {
      std::exception_ptr error = event.await();
      if (error_ == nullptr) error_ = std::move(error);
    });
  }

  void synchronize() override {
    if (thread_.is_current()) {
      fail(ErrorCode::kInvalidArgument,
           "a task asked its own stream to synchronize, which would wait for the task itself; let "
           "the thread that queued it do so");
    }
    auto mark = std::make_shared<Mark>();
    thread_.push([this, mark] { mark->finish(std::exchange(error_, nullptr)); });
    if (const std::exception_ptr error = mark->take()) std::rethrow_exception(error);
  }

 private:
  std::exception_ptr error_;  // of the first task that threw; the thread's alone
  TaskThread thread_;         // last, to end before what its tasks use
};

}  // namespace

std::unique_ptr<Stream::Queue> make_cpu_queue() { return std::make_unique<CpuQueue>(); }

}  // namespace lockstep
