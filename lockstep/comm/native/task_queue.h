// Work done in order by a thread of its own, which starts with the first task.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "lockstep/comm/work.h"

namespace lockstep {

class TaskQueue {
 public:
  TaskQueue() = default;
  // Finishes what is queued; tasks are expected to end soon when their communicator is broken.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  Work submit(std::function<void()> task);

  // Runs the task on the calling thread when nothing is queued, else after all that is.
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
  struct Item {
    std::function<void()> task;
    std::shared_ptr<State> state;
  };

  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  void serve();

  std::atomic<int> pending_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace lockstep
