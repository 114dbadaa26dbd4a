#include "lockstep/base/system/task_thread.h"

#include <utility>

namespace lockstep {

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TaskThread::push(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  }
  changed_.notify_one();
}

bool TaskThread::is_current() const {
  const std::lock_guard lock(mutex_);
  return thread_.get_id() == std::this_thread::get_id();
}

void TaskThread::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace lockstep
