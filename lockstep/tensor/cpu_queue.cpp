#include "lockstep/tensor/cpu_queue.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/completion.h"
#include "lockstep/base/system/task_thread.h"

namespace lockstep {
namespace {

class Mark final : public Event::State {
 public:
  bool done() const override { return end.done(); }
  std::exception_ptr await() const override {
    end.wait_until();
    return end.error();
  }

  Completion<std::exception_ptr> end;
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
    thread_.push([this, mark] { mark->end.finish(error_); });
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
    thread_.push([this, mark] { mark->end.finish(std::exchange(error_, nullptr)); });
    mark->end.wait_until();
    // No other thread holds the error while the caller uses it.
    if (const std::exception_ptr error = mark->end.take_error()) std::rethrow_exception(error);
  }

 private:
  std::exception_ptr error_;  // of the first task that threw; the thread's alone
  TaskThread thread_;         // last, to end before what its tasks use
};

}  // namespace

std::unique_ptr<Stream::Queue> make_cpu_queue() { return std::make_unique<CpuQueue>(); }

}  // namespace lockstep
