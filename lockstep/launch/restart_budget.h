// How many restarts a job has left.
//
// A job begins with `most` restarts. Progress refills them: `most` in an hour. Time counts as
// progress only between steps that no earlier generation has done, so a job that dies at the same
// step again and again ends after `most` restarts, however long it repeats steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep {

class RestartBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RestartBudget(int most) : most_(most), left_(most) {}

  int most() const { return most_; }
  int left() const { return static_cast<int>(left_); }

  // The job has done `step`.
  void reach(std::int64_t step, Time now) {
    if (step <= furthest_) return;
    furthest_ = step;
    if (last_) {
      const double hours = std::chrono::duration<double, std::ratio<3600>>(now - *last_).count();
      left_ = std::min<double>(most_, left_ + most_ * hours);
    }
    last_ = now;
  }
  std::int64_t furthest() const { return furthest_; }  // 0: no step is known of

  // Takes one restart, if there is one; the time until the next step is no progress.
  bool take() {
    if (left() < 1) return false;
    left_ -= 1;
    last_.reset();
    return true;
  }

 private:
  int most_;
  double left_;
  std::int64_t furthest_ = 0;
  std::optional<Time> last_;  // the last new step of this generation
};

}  // namespace lockstep
