// The cheapest clock: a CPU counter that runs at the same speed on all cores.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace lockstep {

using SteadyClock = std::chrono::steady_clock;

inline double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<std::uint64_t>(SteadyClock::now().time_since_epoch().count());
#endif
}

// Ticks per second; measured or read once.
double tick_rate();

// Hints to the CPU that this loop waits for another core.
inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace lockstep
