// A thread that runs communication tasks in order, concurrently with compute.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

#include "lockstep/base/system/task_thread.h"

namespace lockstep::parallel {

class CommunicationThread {
 public:
  // Returns the number of bytes sent.
  using Task = std::function<std::uint64_t()>;

  // Runs after all earlier tasks. After a task has thrown, later ones are skipped.
  void push(Task task);
  // The number of unfinished tasks.
  std::size_t under_way();
  // Waits until at most `others` tasks are unfinished. Rethrows the error of a task.
  void wait(std::size_t others = 0);
  // The same, but ignores errors.
  void settle() noexcept;

  struct Cost {
    double seconds = 0;  // during which a task ran
    std::uint64_t bytes = 0;
  };
  // The cost since the last call.
  Cost take_cost();

 private:
  void run(const Task& task);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t under_way_ = 0;
  Cost cost_;
  std::exception_ptr error_;
  TaskThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
