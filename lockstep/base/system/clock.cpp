#include "lockstep/base/system/clock.h"

namespace lockstep {
namespace {

double find_tick_rate() {
#if defined(__aarch64__)
  std::uint64_t frequency;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
  return static_cast<double>(frequency);
#elif defined(__x86_64__)
  // Two readings of both clocks, far enough apart that reading them costs nothing against it.
  constexpr auto kSpan = std::chrono::milliseconds(2);
  const auto start = SteadyClock::now();
  const std::uint64_t first = ticks();
  auto now = start;
  while (now - start < kSpan) now = SteadyClock::now();
  return static_cast<double>(ticks() - first) / std::chrono::duration<double>(now - start).count();
#else
  return 1e9;
#endif
}

}  // namespace

double tick_rate() {
  static const double rate = find_tick_rate();
  return rate;
}

}  // namespace lockstep
