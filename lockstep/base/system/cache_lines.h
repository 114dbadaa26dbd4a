// Hints to the CPU about cache lines.
#pragma once

namespace lockstep {

// The line that `address` lies on will be read soon. Any address will do.
[[gnu::always_inline]] inline void prefetch_to_read(const void* address) {
  __builtin_prefetch(address, 0);
}

// The line will be written soon: other cores' copies of it are given up now.
[[gnu::always_inline]] inline void prefetch_to_write(void* address) {
#if defined(__x86_64__)
  // The builtin prefetches for reading unless compiled for CPUs with this instruction. Other CPUs
  // ignore it.
  asm volatile("prefetchw %0" ::"m"(*static_cast<char*>(address)));
#elif defined(__aarch64__)
  // The compiler may move the builtin.
  asm volatile("prfm pstl1keep, %0" ::"Q"(*static_cast<char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

// The line was written for other cores: moves it to a cache that they reach sooner.
[[gnu::always_inline]] inline void hand_over_line(const void* address) {
#if defined(__x86_64__)
  // cldemote (%rax), as bytes, because assemblers accept it only for CPUs that have it. Other CPUs
  // ignore it.
  asm volatile(".byte 0x0f, 0x1c, 0x00" ::"a"(address) : "memory");
#else
  static_cast<void>(address);
#endif
}

}  // namespace lockstep
