// The bandwidth at which this machine streams through memory, as STREAM counts it: two loops over
// arrays far larger than the caches, every byte that the program reads or writes counted once
// (lines that the hardware fetches before writing them are not).
#pragma once

#include <cstddef>

namespace lockstep::bench {

struct Streaming {
  int threads = 0;
  std::size_t array_bytes = 0;  // of each of the three arrays, over all threads
  double copy = 0;              // bytes per second of c[i] = a[i]
  double triad = 0;             // bytes per second of a[i] = b[i] + s * c[i]

  double best() const { return copy > triad ? copy : triad; }
};

// The best of several passes on `threads` threads; takes about a second.
Streaming measure_streaming(int threads);

}  // namespace lockstep::bench
