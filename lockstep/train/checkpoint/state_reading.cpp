#include "lockstep/train/checkpoint/state_reading.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"

namespace lockstep::train {

void StateReading::has_read(std::size_t block) {
  {
    const std::lock_guard lock(mutex_);
    if (given_up_) fail(ErrorCode::kAborted, "the checkpoint was given up");
    blocks_ = block + 1;
  }
  changed_.notify_all();
}

void StateReading::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

void StateReading::before_change(std::size_t block) {
  std::unique_lock lock(mutex_);
  const auto is_read = [&] { return ended_ || blocks_ > block; };
  if (is_read()) return;
  if (std::this_thread::get_id() != trains_) return changed_.wait(lock, is_read);
  const auto begin = SteadyClock::now();
  const parallel::TraceScope scope(
      trace_, {.lane = parallel::TraceLane::kWaiting, .kind = "wait for", .of = "checkpoint"});
  changed_.wait(lock, is_read);
  waited_ += seconds_since(begin);
}

void StateReading::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
}

double StateReading::take_waited() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waited_, 0);
}

}  // namespace lockstep::train
