// How much memory the ranks of a job take, whoever's job it is, seen from outside.
//
// A rank is a process below this one that was started with the variable RANK, and is not below
// another: so launchers, and what a rank starts itself, do not count. Of every rank the kernel is
// asked for its proportional set size (PSS) again and again: of a page that several ranks have
// mapped each has its share, and all ranks' together are what the job takes of the machine. Asking
// holds a process up for as long as its pages are counted, so a run that is watched is not timed.
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

  // At the moment at which all ranks together had most. (The most of each by itself would say
  // nothing: one whose neighbours have ended has all of the pages that it shared with them.)
  struct Peak {
    std::size_t all_bytes = 0;      // 0: nothing was seen
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
