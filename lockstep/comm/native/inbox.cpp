#include <algorithm>

#include "lockstep/base/clock.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep {

int Inbox::member_of(int world_rank) const {
  const auto found = std::find(members.begin(), members.end(), world_rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

void Inbox::add_signal(int world_rank) {
  {
    const std::lock_guard lock(mutex_);
    ++signals_[member_of(world_rank)];
  }
  changed_.notify_all();
}

void Inbox::put_status(int world_rank, Status status) {
  const std::lock_guard lock(mutex_);
  statuses_[member_of(world_rank)] = std::move(status);
}

std::map<int, Status> Inbox::statuses() const {
  const std::lock_guard lock(mutex_);
  return statuses_;
}

void Inbox::wait_signal(int member, std::uint64_t count, std::chrono::nanoseconds timeout) {
  constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks at the fault
  const auto start = SteadyClock::now();
  std::unique_lock lock(mutex_);
  while (signals_[member] < count) {
    fault.throw_if_present();
    const auto waited = SteadyClock::now() - start;
    if (waited >= timeout) {
      throw Error(
          ErrorCode::kTimeout,
          fmt::format("waited {} for a signal from rank {}",
                      format_seconds(std::chrono::duration<double>(waited).count()), member),
          {member});
    }
    changed_.wait_for(lock, kLook);
  }
}

}  // namespace lockstep
