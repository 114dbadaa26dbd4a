#include "lockstep/parallel/communication/communication_thread.h"

#include <utility>

#include "lockstep/base/system/clock.h"

namespace lockstep::parallel {

void CommunicationThread::push(Task task) {
  {
    const std::lock_guard lock(mutex_);
    ++under_way_;
  }
  thread_.push([this, task = std::move(task)] { run(task); });
}

void CommunicationThread::run(const Task& task) {
  const auto begin = SteadyClock::now();
  std::unique_lock lock(mutex_);
  std::exception_ptr error = error_;
  lock.unlock();
  std::uint64_t bytes = 0;
  if (!error) {
    try {
      bytes = task();
    } catch (...) {
      error = std::current_exception();
    }
  }
  lock.lock();
  error_ = error;
  cost_.seconds += seconds_since(begin);
  cost_.bytes += bytes;
  --under_way_;
  changed_.notify_all();
}

std::size_t CommunicationThread::under_way() {
  const std::lock_guard lock(mutex_);
  return under_way_;
}

void CommunicationThread::wait(std::size_t others) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return under_way_ <= others; });
  if (error_) std::rethrow_exception(error_);
}

void CommunicationThread::settle() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return under_way_ == 0; });
}

CommunicationThread::Cost CommunicationThread::take_cost() {
  const std::lock_guard lock(mutex_);
  return std::exchange(cost_, {});
}

}  // namespace lockstep::parallel
