// Collects the traces of a run's workers in its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>

#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// Of a run with train.trace; without it everything here does nothing. All workers make the same
// calls. A run does not end for its trace: where the file cannot be written there is a warning.
class RunTrace {
 public:
  // All outlive it.
  RunTrace(const RunOptions& options, RunGroup& group, parallel::Strategy& strategy,
           const Audience& audience);

  // The run begins, or continues, after that many steps.
  void begin(std::int64_t steps_done);

  // Writes the trace of a run in progress, for its page: after the first steps that fill the trace,
  // and then whenever as many steps again are done, so that it costs little in the end. For workers
  // that go in lockstep.
  void after_step(std::int64_t steps_done);

  // When the last step is done. Where workers do not go in lockstep some may be gone: the trace is
  // of those that are still there.
  void end();

  // On the leader: that was written at the end; empty: none.
  const std::filesystem::path& file() const { return file_; }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  std::filesystem::path write();

  const RunOptions& options_;
  RunGroup& group_;
  parallel::Strategy& strategy_;
  const Audience& audience_;
  std::int64_t begin_ = 0;
  std::int64_t next_ = kNever;  // step after which it is written
  std::filesystem::path file_;
};

}  // namespace lockstep::train
