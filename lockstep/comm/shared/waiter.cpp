#include "lockstep/comm/shared/waiter.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "lockstep/base/system/futex.h"

namespace lockstep::shared {
namespace {

constexpr auto kNap = std::chrono::milliseconds(20);   // between two checks while asleep
constexpr auto kCheck = std::chrono::milliseconds(1);  // between two checks while awake

// Counts a thread among the sleepers; ready() may throw.
class Sleeper {
 public:
  explicit Sleeper(Doorbell& doorbell) : doorbell_(doorbell) {
    doorbell_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Sleeper() { doorbell_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  Doorbell& doorbell_;
};

// Without this the kernel takes the liberty to wake a thread 50 us late.
void be_punctual() {
  thread_local const bool told = ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;
  static_cast<void>(told);
}

std::chrono::nanoseconds time_until(Deadline due) {
  if (due == kNoDeadline) return kNap;
  be_punctual();
  return std::min<std::chrono::nanoseconds>(kNap, due - SteadyClock::now());
}

}  // namespace

WaitPolicy wait_policy_for(int ranks, int cpus) {
  if (ranks <= cpus) return {.spins = 4000, .yields = 0, .crowded = false};
  return {.spins = 1000, .yields = 50, .crowded = true};
}

void ring_sleeping(Doorbell& doorbell) {
  doorbell.rung.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(doorbell.rung);
}

void Waiter::wait_long(FunctionRef<bool()> ready, FunctionRef<Deadline()> due,
                       FunctionRef<bool()> keeps_cpu, bool may_spin) {
  for (int i = 0; i < wait_policy_.yields; ++i) {
    sched_yield();
    if (ready()) return;
    if (!may_spin || !keeps_cpu()) continue;
    if (spin(ready)) return;
    may_spin = false;
  }
  // From here on: most waits are over before it is worth a look at the clock.
  const auto start = SteadyClock::now();
  auto next_check = start + kCheck;
  while (true) {
    {
      const Sleeper sleeper(doorbell_);
      const std::uint32_t rung = doorbell_.rung.load(std::memory_order_seq_cst);
      if (ready()) return;
      if (const auto nap = time_until(due()); nap.count() > 0)
        futex_wait(doorbell_.rung, rung, nap);
    }
    if (ready()) return;
    if (const auto now = SteadyClock::now(); now >= next_check) {
      check_(now - start);
      next_check = now + kCheck;
    }
  }
}

}  // namespace lockstep::shared
