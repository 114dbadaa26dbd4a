// Measures the memory of a job's ranks from outside, of lockstep or of a peer.
//
// A rank is a process below this one that was started with the variable RANK, and is not below
// another: so launchers, and what a rank starts itself, do not count. It samples the proportional
// set size (PSS) of every rank: a page that several ranks map is divided between them, so the sum
// over ranks is the memory of the job. Sampling stops a process while its pages are counted, so a
// watched run is not timed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <set>
#include <thread>

namespace lockstep::bench {

class MemoryWatch {
 public:
  // Looks for `ranks` of them until all are found.
  explicit MemoryWatch(int ranks, std::chrono::milliseconds period = std::chrono::milliseconds(20));

  // At the time of the largest sum over ranks. (The peak of a single rank would be misleading:
  // after others have ended, it has all the pages it shared with them.)
  struct Peak {
    std::size_t all_bytes = 0;      // 0: no samples
    std::size_t fullest_bytes = 0;  // of the rank that had most then
    std::size_t samples = 0;        // in which there was a rank
  };
  // So far; any thread may ask.
  std::size_t samples() const { return samples_; }
  // Ends the watch.
  Peak finish();

 private:
  void sample();
  bool take_sample();  // whether there was a rank

  const int ranks_;
  std::set<pid_t> processes_;  // of the ranks
  Peak peak_;
  std::atomic<std::size_t> samples_{0};
  std::jthread thread_;  // the last: it uses the others
};

}  // namespace lockstep::bench
