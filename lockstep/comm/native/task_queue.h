// Runs tasks in order on its own thread, which starts with the first task.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/base/system/task_thread.h"
#include "lockstep/comm/work.h"

namespace lockstep {

class TaskQueue {
 public:
  // Destruction finishes what is queued; tasks are expected to end soon when their communicator is
  // broken.
  TaskQueue() = default;
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  Work submit(std::function<void()> task);

  // Runs the task on the calling thread if nothing is queued, else after the queued tasks.
  template <class Task>
  void run(Task&& task) {
    if (idle()) {
      task();
    } else {
      submit(std::forward<Task>(task)).wait();
    }
  }

 private:
  class State;

  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

  std::atomic<int> pending_{0};
  TaskThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep
