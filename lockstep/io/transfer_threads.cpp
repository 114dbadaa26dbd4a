#include <array>
#include <condition_variable>
#include <mutex>

#include "lockstep/base/system/task_thread.h"
#include "lockstep/io/transfer.h"

namespace lockstep::io {

namespace {

// This many threads keep a disk busy; they wait most of the time.
constexpr std::size_t kThreads = 4;

class ThreadEngine final : public TransferEngine {
 public:
  std::string_view name() const override { return "threads"; }

  void start(Transfer& transfer) override {
    threads_[next_++ % kThreads].push([this, &transfer] { run(transfer); });
  }

  void finish(Transfer& transfer) override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return transfer.done; });
  }

 private:
  void run(Transfer& transfer) {
    carry_out(transfer);
    {
      const std::lock_guard lock(mutex_);
      transfer.done = true;
    }
    ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t next_ = 0;
  std::array<TaskThread, kThreads> threads_;  // last, to end before what their tasks use
};

}  // namespace

std::unique_ptr<TransferEngine> make_thread_engine() { return std::make_unique<ThreadEngine>(); }

}  // namespace lockstep::io
