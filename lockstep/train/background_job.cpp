#include "lockstep/train/background_job.h"

#include <fmt/format.h>

#include <exception>
#include <system_error>
#include <utility>

namespace lockstep::train {

BackgroundJob::BackgroundJob(std::function<void()> work) {
  try {
    thread_ = std::thread([this, work = std::move(work)] {
      try {
        work();
      } catch (const Error& error) {
        failure_ = error;
      } catch (const std::exception& error) {
        failure_ = Error(ErrorCode::kSystem, error.what());
      }
      done_.store(true, std::memory_order_release);
    });
  } catch (const std::system_error& error) {
    failure_ = Error(ErrorCode::kSystem, fmt::format("cannot start a thread: {}", error.what()));
    done_.store(true, std::memory_order_release);
  }
}

void BackgroundJob::wait() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep::train
