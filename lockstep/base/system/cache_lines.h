// Asking for cache lines before they are needed, and giving them away.
#pragma once

namespace lockstep {

// The line that `address` lies on will be read soon. Any address will do.
[[gnu::always_inline]] inline void prefetch_to_read(const void* address) {
  __builtin_prefetch(address, 0);
}

// The line will be written soon: other cores' copies of it are given up now.
[[gnu::always_inline]] inline void prefetch_to_write(void* address) {
#if defined(__x86_64__)
  // The builtin asks for reading unless told that the CPU has this instruction; where one has not,
  // it does nothing.
  asm volatile("prefetchw %0" ::"m"(*static_cast<char*>(address)));
#elif defined(__aarch64__)
  // The builtin may be moved to where it was not asked for.
  asm volatile("prfm pstl1keep, %0" ::"Q"(*static_cast<char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

// The line was written for other cores: it goes where they reach it sooner.
[[gnu::always_inline]] inline void hand_over_line(const void* address) {
#if defined(__x86_64__)
  // cldemote (%rax), by its bytes since assemblers take it only when told that the CPU has it. CPUs
  // that have not do nothing.
  asm volatile(".byte 0x0f, 0x1c, 0x00" ::"a"(address) : "memory");
#else
  static_cast<void>(address);
#endif
}

}  // namespace lockstep
