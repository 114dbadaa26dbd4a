// Communication beside compute: tasks that are done in order by a thread of their own.
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
  // Returns the bytes that it sent.
  using Task = std::function<std::uint64_t()>;

  // Runs after all that were pushed before. Once one has thrown, later ones are left out.
  void push(Task task);
  // How many are not done.
  std::size_t under_way();
  // Until all are done, or all but `others`. Throws what a task threw.
  void wait(std::size_t others = 0);
  // The same, whatever they threw.
  void settle() noexcept;

  struct Cost {
    double seconds = 0;  // in which a task ran
    std::uint64_t bytes = 0;
  };
  // Since it was last asked for.
  Cost take_cost();

 private:
  void run(const Task& task);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t under_way_ = 0;
  Cost cost_;
  std::exception_ptr error_;
  TaskThread thread_;  // last, to end before what its tasks use
};

}  // namespace lockstep::parallel
