#include "lockstep/base/clock.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep {

void Inbox::add_signal(int world_rank) {
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] == world_rank) ++signals_[static_cast<int>(i)];
    }
  }
  changed_.notify_all();
}

std::uint64_t Inbox::signals(int member) const {
  const std::lock_guard lock(mutex_);
  const auto found = signals_.find(member);
  return found == signals_.end() ? 0 : found->second;
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
