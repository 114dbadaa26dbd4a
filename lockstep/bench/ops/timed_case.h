// A case on a GPU, timed in batches.
//
// One launch is too short to be timed by itself: queueing it and waiting for it take longer than
// many an operation. So a batch of calls is captured once, launched as a whole, and waited for, and
// its time is divided by its calls. Calls go round between sets of tensors that caches cannot
// hold together. An Ops that cannot capture runs the calls of a batch one after the other.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/bench/ops/case_tensors.h"

namespace lockstep::bench {

class TimedCase {
 public:
  // Allocates, fills, runs every set once and captures a batch that takes about `batch_seconds`.
  // Throws what the operation throws. The case is copied; `ops` outlives this.
  TimedCase(Ops& ops, const OpCase& one, std::size_t more_than_caches, double batch_seconds);

  std::size_t calls() const { return calls_; }  // of a batch
  std::size_t sets() const { return sets_.size(); }
  double seconds();  // of a call, by one batch

 private:
  void run_calls(std::size_t count);

  Ops& ops_;
  const OpCase one_;
  const CaseScratch scratch_;
  const std::vector<CaseTensors> sets_;
  std::size_t calls_ = 0;
  std::unique_ptr<CapturedStep> batch_;  // none: the Ops cannot capture
};

}  // namespace lockstep::bench
