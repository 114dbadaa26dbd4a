#include "lockstep/nn/gather_plan.h"

#include <algorithm>

namespace lockstep::nn {
namespace {

class Gatherer {
 public:
  std::vector<Gather> take() { return std::move(gathers_); }

  int there(int step) const {
    return static_cast<int>(
        std::ranges::count_if(gathers_, [&](const Gather& each) { return each.last >= step; }));
  }
  // Holds on to what is there at `step` until `last`; false: it is not.
  bool keep(std::size_t unit, int step, int last) {
    const auto found = std::ranges::find_if(
        gathers_, [&](const Gather& each) { return each.unit == unit && each.last >= step; });
    if (found == gathers_.end()) return false;
    found->last = std::max(found->last, last);
    return true;
  }
  void add(std::size_t unit, int starts, int needed) {
    gathers_.push_back({.unit = unit, .starts = starts, .needed = needed, .last = needed});
  }

 private:
  std::vector<Gather> gathers_;
};

}  // namespace

std::vector<Gather> plan_gathers(std::span<const std::vector<std::size_t>> reads, int most) {
  Gatherer gatherer;
  const int steps = static_cast<int>(reads.size());
  for (int step = 0; step < steps; ++step) {
    for (const std::size_t unit : reads[static_cast<std::size_t>(step)]) {
      if (!gatherer.keep(unit, step, step)) gatherer.add(unit, step, step);
    }
    if (step + 1 == steps) break;
    std::vector<std::size_t> missing;
    for (const std::size_t unit : reads[static_cast<std::size_t>(step) + 1]) {
      if (!gatherer.keep(unit, step, step + 1)) missing.push_back(unit);
    }
    for (const std::size_t unit : missing) {
      if (gatherer.there(step) < most) gatherer.add(unit, step, step + 1);
    }
  }
  return gatherer.take();
}

}  // namespace lockstep::nn
