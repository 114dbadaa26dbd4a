// How a rank waits for another rank of its node. It spins while every rank has its own CPU, or
// while the ranks that share its CPU are known to wait as well. Otherwise it yields some tens of
// times and then sleeps until its doorbell is rung. Long waits check for errors and deadlines.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <type_traits>

#include "lockstep/base/system/clock.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/shared/segment.h"

namespace lockstep::shared {

// How long to spin and to yield before sleeping.
struct WaitPolicy {
  int spins;     // checks with a CPU pause between them
  int yields;    // checks with a yield to other processes between them
  bool crowded;  // ranks share CPUs: every wait may cost a switch
};
// For waits that are always long.
inline constexpr WaitPolicy kSleepAtOnce{.spins = 0, .yields = 0, .crowded = true};
// The policy for `ranks` ranks on `cpus` CPUs.
WaitPolicy wait_policy_for(int ranks, int cpus);

// A non-owning reference to a function, valid for the call it is passed to.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

class Waiter {
 public:
  // `check` is called from time to time during a long wait, with the time waited so far; it throws
  // to end the wait.
  using Check = std::function<void(std::chrono::nanoseconds waited)>;

  Waiter(Doorbell& doorbell, WaitPolicy wait_policy, Check check)
      : doorbell_(doorbell), wait_policy_(wait_policy), check_(std::move(check)) {}

  // Returns once ready() is true. The thread that makes it true must ring this waiter's doorbell
  // afterwards.
  template <class Ready>
  void until(Ready&& ready) {
    until(ready, [] { return kNoDeadline; });
  }

  // The same for a condition that time alone may make true: after ready() returned false, due() is
  // the time of the next check, unless the doorbell is rung before.
  template <class Ready, class Due>
  void until(Ready&& ready, Due&& due) {
    if (ready() || (!wait_policy_.crowded && spin(ready))) return;
    wait_long(
        ready, due, [] { return false; }, false);
  }

  // The same, with spinning while keeps_cpu() is true: the ranks that share this CPU wait as well.
  // Once true, it stays true.
  template <class Ready, class KeepsCpu>
  void until_beside(Ready&& ready, KeepsCpu&& keeps_cpu) {
    if (ready()) return;
    const bool spins = !wait_policy_.crowded || keeps_cpu();
    if (spins && spin(ready)) return;
    wait_long(
        ready, [] { return kNoDeadline; }, keeps_cpu, !spins);
  }

 private:
  // Returns whether it became ready.
  template <class Ready>
  bool spin(Ready& ready) {
    for (int i = 0; i < wait_policy_.spins; ++i) {
      if (ready()) return true;
      cpu_relax();
    }
    return ready();
  }
  // `may_spin`: once, as soon as keeps_cpu().
  void wait_long(FunctionRef<bool()> ready, FunctionRef<Deadline()> due,
                 FunctionRef<bool()> keeps_cpu, bool may_spin);

  Doorbell& doorbell_;
  WaitPolicy wait_policy_;
  Check check_;
};

// Wakes the owner of the doorbell if it sleeps. The change it waits for must have been made by a
// sequentially consistent store before.
inline void ring(Doorbell& doorbell);
void ring_sleeping(Doorbell& doorbell);

inline void ring(Doorbell& doorbell) {
  if (doorbell.sleepers.load(std::memory_order_seq_cst) != 0) ring_sleeping(doorbell);
}

}  // namespace lockstep::shared
