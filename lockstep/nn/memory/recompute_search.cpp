#include "lockstep/nn/memory/recompute_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

namespace lockstep::nn {
namespace {

// How many of alike blocks have which mode.
struct Option {
  PerMode<std::size_t> counts{};
  double cost = 0;
};

// Alike blocks, and all there is to choose for them, the cheapest first.
struct Kind {
  std::vector<std::size_t> blocks;
  std::vector<Recompute> modes;  // worth having, those first that keep least
  std::vector<Option> options;

  void put(const Option& option, std::vector<Recompute>& choice) const {
    auto next = blocks.begin();
    for (const Recompute mode : modes) {
      for (std::size_t i = 0; i < option.counts[index_of(mode)]; ++i) choice[*next++] = mode;
    }
  }
};

std::vector<Recompute> modes_worth_having(const PerMode<Footprint>& footprints) {
  std::vector<Recompute> modes;
  for (const Recompute mode : plan::kAllRecompute) {
    const bool is_beaten = std::ranges::any_of(plan::kAllRecompute, [&](Recompute other) {
      return other < mode && footprints[index_of(other)].is_no_worse(footprints[index_of(mode)]);
    });
    if (!is_beaten) modes.push_back(mode);
  }
  std::ranges::stable_sort(modes, {},
                           [&](Recompute mode) { return footprints[index_of(mode)].kept; });
  return modes;
}

// Adds all ways to assign `left` blocks to the modes from the `mode`-th on.
void add_options(Kind& kind, const PerMode<Footprint>& footprints, std::size_t mode,
                 std::size_t left, Option option) {
  const auto give = [&](std::size_t count) {
    Option given = option;
    const std::size_t index = index_of(kind.modes[mode]);
    given.counts[index] = count;
    given.cost += static_cast<double>(count) * footprints[index].cost;
    return given;
  };
  if (mode + 1 == kind.modes.size()) {
    kind.options.push_back(give(left));
    return;
  }
  for (std::size_t count = 0; count <= left; ++count) {
    add_options(kind, footprints, mode + 1, left - count, give(count));
  }
}

std::vector<Kind> kinds_of(const PerMode<MemoryPlan>& plans, const Footprints& footprints) {
  // The last blocks' activations stay where those of others go to another tier.
  const auto alike = [&](std::size_t a, std::size_t b) {
    return footprints.of(a) == footprints.of(b) &&
           std::ranges::all_of(
               plans, [&](const MemoryPlan& plan) { return plan.specs[a] == plan.specs[b]; });
  };
  std::vector<Kind> kinds;
  for (std::size_t block = 0; block < footprints.blocks(); ++block) {
    const auto same = std::ranges::find_if(
        kinds, [&](const Kind& kind) { return alike(kind.blocks.front(), block); });
    if (same != kinds.end()) {
      same->blocks.push_back(block);
    } else {
      kinds.push_back({.blocks = {block}, .modes = {}, .options = {}});
    }
  }
  for (Kind& kind : kinds) {
    const PerMode<Footprint>& each = footprints.of(kind.blocks.front());
    kind.modes = modes_worth_having(each);
    add_options(kind, each, 0, kind.blocks.size(), {});
    std::ranges::stable_sort(kind.options, {}, &Option::cost);
  }
  return kinds;
}

// The choices of all kinds together, the cheapest first.
class Choices {
 public:
  Choices(const std::vector<Kind>& kinds, std::size_t blocks) : kinds_(kinds), blocks_(blocks) {
    push({std::vector<std::size_t>(kinds.size()), 0});
  }

  bool any() const { return !queue_.empty(); }
  std::vector<Recompute> take() {
    const Node node = queue_.top().second;
    queue_.pop();
    std::vector<Recompute> choice(blocks_);
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      kinds_[k].put(kinds_[k].options[node.options[k]], choice);
    }
    // Every choice comes from one other: with its last option that is not the first put back by
    // one.
    for (std::size_t k = node.last; k < kinds_.size(); ++k) {
      if (node.options[k] + 1 == kinds_[k].options.size()) continue;
      Node next{node.options, k};
      ++next.options[k];
      push(std::move(next));
    }
    return choice;
  }

 private:
  struct Node {
    std::vector<std::size_t> options;  // of each kind
    std::size_t last = 0;              // kind that was put forward
    auto operator<=>(const Node&) const = default;
  };

  void push(Node node) {
    double cost = 0;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      cost += kinds_[k].options[node.options[k]].cost;
    }
    queue_.emplace(cost, std::move(node));
  }

  const std::vector<Kind>& kinds_;
  std::size_t blocks_;
  std::priority_queue<std::pair<double, Node>, std::vector<std::pair<double, Node>>, std::greater<>>
      queue_;
};

}  // namespace

bool MemoryLimits::allow(const MemoryPlan& plan) const {
  return (all == 0 || plan.bytes() <= all) && (device == 0 || plan.bytes(Tier::kDevice) <= device);
}

RecomputeFit cheapest_recompute(std::size_t blocks, const PlanOf& plan_of,
                                const MemoryLimits& limits) {
  PerMode<MemoryPlan> plans;
  const auto fit_of = [&](const std::vector<Recompute>& choice, const MemoryPlan& plan) {
    const std::vector<double> costs = recompute_costs(plan, plans[index_of(Recompute::kNone)]);
    return RecomputeFit{.of_blocks = choice,
                        .fits = limits.allow(plan),
                        .bytes = plan.bytes(),
                        .flops = std::accumulate(costs.begin(), costs.end(), 0.0)};
  };
  for (const Recompute mode : plan::kAllRecompute) {
    const std::vector<Recompute> choice(blocks, mode);
    plans[index_of(mode)] = plan_of(choice);
    if (mode != Recompute::kNone) continue;
    const RecomputeFit nothing = fit_of(choice, plans[index_of(mode)]);
    if (nothing.fits) return nothing;
  }
  const Footprints footprints(plans);
  const std::vector<Kind> kinds = kinds_of(plans, footprints);
  std::vector<Recompute> smallest;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (Choices choices(kinds, blocks); choices.any();) {
    const std::vector<Recompute> choice = choices.take();
    const std::size_t alive = footprints.most_alive(choice);
    if (alive < least) {
      least = alive;
      smallest = choice;
    }
    const bool may_fit = (limits.all == 0 || alive + footprints.elsewhere() <= limits.all) &&
                         (limits.device == 0 || alive <= limits.device);
    if (!may_fit) continue;
    const RecomputeFit fit = fit_of(choice, plan_of(choice));
    if (fit.fits) return fit;
  }
  return fit_of(smallest, plan_of(smallest));
}

std::string text(const std::vector<Recompute>& of_blocks, const Model& model) {
  std::string said;
  for (std::size_t first = 0, end = 0; first < of_blocks.size(); first = end) {
    while (end < of_blocks.size() && of_blocks[end] == of_blocks[first]) ++end;
    if (of_blocks[first] == Recompute::kNone) continue;
    const std::string name = model.block(first).name();
    fmt::format_to(std::back_inserter(said), "{}{} in {}{}", said.empty() ? "" : ", ",
                   plan::name(of_blocks[first]), name,
                   end - first > 1 ? " .. " + model.block(end - 1).name() : "");
  }
  return said.empty() ? "none" : said;
}

}  // namespace lockstep::nn
