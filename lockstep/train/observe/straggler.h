// Finds a straggler: a worker that was more than 20 % slower than the median of the others in most
// of the last steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::train {

struct Straggler {
  int rank = 0;
  double times = 1;  // as long as the others take
};

class StragglerWatch {
 public:
  static constexpr std::size_t kWindow = 20;  // steps
  static constexpr double kSlower = 1.2;      // times the others' median

  // `work` is the amount of work of each worker in a step, in any unit; empty: equal. Times are
  // divided by it.
  explicit StragglerWatch(std::vector<double> work = {});

  // After each step. Workers that have done nothing in it are left out.
  void add(std::span<const parallel::StepCost> costs);
  // The current straggler, if any.
  std::optional<Straggler> straggler() const;

 private:
  std::vector<double> work_;
  std::deque<std::optional<Straggler>> last_;  // of each step, the latest behind
};

}  // namespace lockstep::train
