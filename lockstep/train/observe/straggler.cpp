#include "lockstep/train/observe/straggler.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::train {
namespace {

double median_of(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The straggler of one step, from seconds per micro-batch; 0: the worker computed nothing.
std::optional<Straggler> slowest_by_far(const std::vector<double>& seconds) {
  const auto slowest = std::ranges::max_element(seconds);
  std::vector<double> others;
  for (auto one = seconds.begin(); one != seconds.end(); ++one) {
    if (one != slowest && *one > 0) others.push_back(*one);
  }
  if (others.empty()) return std::nullopt;
  const double times = *slowest / median_of(std::move(others));
  if (!(times > StragglerWatch::kSlower)) return std::nullopt;
  return Straggler{.rank = static_cast<int>(slowest - seconds.begin()), .times = times};
}

}  // namespace

StragglerWatch::StragglerWatch(std::vector<double> work) : work_(std::move(work)) {}

void StragglerWatch::add(std::span<const parallel::StepCost> costs) {
  if (costs.size() < 2) return;
  std::vector<double> seconds;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const double work = i < work_.size() ? work_[i] : 1;
    seconds.push_back(work > 0 && costs[i].known ? costs[i].compute_seconds / work : 0);
  }
  last_.push_back(slowest_by_far(seconds));
  if (last_.size() > kWindow) last_.pop_front();
}

std::optional<Straggler> StragglerWatch::straggler() const {
  std::map<int, std::vector<double>> times;
  for (const auto& one : last_) {
    if (one) times[one->rank].push_back(one->times);
  }
  for (const auto& [rank, all] : times) {
    if (all.size() > kWindow / 2) return Straggler{.rank = rank, .times = median_of(all)};
  }
  return std::nullopt;
}

}  // namespace lockstep::train
