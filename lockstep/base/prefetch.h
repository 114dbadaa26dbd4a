// Asking for cache lines before they are needed.
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
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace lockstep
