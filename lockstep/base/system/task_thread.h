// A thread that runs tasks in the order in which they were pushed. It starts with the first task.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

class TaskThread {
 public:
  TaskThread() = default;
  // Finishes what is queued.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Thread-safe; a task may call it, too. What a task captured is destroyed before the next one
  // begins. A task that throws ends the process.
  void push(std::function<void()> task);

  // Whether the caller is a task of this thread, which must not wait for a later one.
  bool is_current() const;

 private:
  void serve();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace lockstep
