#include "lockstep/nn/memory/gather_plan.h"

#include <algorithm>
#include <span>
#include <utility>

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
  bool came_once(std::size_t unit) const {
    return std::ranges::count(gathers_, unit, &Gather::unit) == 1;
  }
  void add(std::size_t unit, int starts, int needed) {
    gathers_.push_back({.unit = unit, .starts = starts, .needed = needed, .last = needed});
  }

 private:
  std::vector<Gather> gathers_;
};

using Reads = std::vector<std::vector<std::size_t>>;

bool is_read(std::span<const std::vector<std::size_t>> steps, std::size_t unit) {
  return std::ranges::any_of(
      steps, [&](const auto& units) { return std::ranges::find(units, unit) != units.end(); });
}

// What forward reads and no backward does, in that of its own block.
void read_all_in_backward(Reads& reads) {
  const std::size_t blocks = reads.size() / 2;
  for (std::size_t unit = 0; unit < blocks; ++unit) {
    const auto steps = std::span(reads);
    if (!is_read(steps.first(blocks), unit) || is_read(steps.subspan(blocks), unit)) continue;
    reads[reads.size() - 1 - unit].push_back(unit);
  }
}

}  // namespace

std::vector<Gather> plan_gathers(Reads reads, const GatherRules& rules) {
  if (rules.reshard_after_forward) read_all_in_backward(reads);
  Gatherer gatherer;
  const int steps = static_cast<int>(reads.size());
  for (int step = 0; step < steps; ++step) {
    for (const std::size_t unit : reads[static_cast<std::size_t>(step)]) {
      if (!gatherer.keep(unit, step, step)) gatherer.add(unit, step, step);
    }
    if (step + 1 == steps) break;
    if (std::ranges::find(rules.restarts, step + 1) != rules.restarts.end()) continue;
    const bool turns = step + 1 == steps / 2;
    std::vector<std::size_t> missing;
    for (const std::size_t unit : reads[static_cast<std::size_t>(step) + 1]) {
      if (turns && rules.reshard_after_forward && gatherer.came_once(unit)) continue;
      if (!gatherer.keep(unit, step, step + 1)) missing.push_back(unit);
    }
    for (const std::size_t unit : missing) {
      if (gatherer.there(step) < rules.max_unsharded_blocks) gatherer.add(unit, step, step + 1);
    }
  }
  return gatherer.take();
}

}  // namespace lockstep::nn
