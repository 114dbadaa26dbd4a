#include "lockstep/comm/schedule/cost.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::schedule {
namespace {

// What one round puts on every port and link, in chunks; index by rank, machine or leaf.
class Load {
 public:
  explicit Load(const Topology& topology) : topology_(topology) {
    const auto ranks = static_cast<std::size_t>(topology.ranks());
    const auto machines = 1 + static_cast<std::size_t>(*std::max_element(topology.machines.begin(),
                                                                         topology.machines.end()));
    const auto leaves =
        1 + static_cast<std::size_t>(topology.leaf_of(static_cast<int>(machines) - 1));
    for (auto* per_rank : {&starting_, &accepting_, &inner_out_, &inner_in_, &combined_}) {
      per_rank->resize(ranks);
    }
    for (auto* per_machine : {&outer_out_, &outer_in_}) per_machine->resize(machines);
    for (auto* per_leaf : {&spine_out_, &spine_in_}) per_leaf->resize(leaves);
    if (topology.machines_per_leaf > 0) {
      for (std::size_t leaf = 0; leaf < leaves; ++leaf) {
        uplinks_.push_back(topology.uplink_bandwidth(static_cast<int>(leaf)));
      }
    }
  }

  void clear() {
    for (auto* loads : {&starting_, &accepting_, &inner_out_, &inner_in_, &combined_, &outer_out_,
                        &outer_in_, &spine_out_, &spine_in_}) {
      std::fill(loads->begin(), loads->end(), 0.0);
    }
    messages_.clear();
  }

  void send(int from, int to, int chunks) {
    const Way way = way_between(from, to);
    starting_[way.from] += way.alpha;
    accepting_[way.to] += way.alpha;
    if (way.inner) {
      inner_out_[way.from] += chunks;
      inner_in_[way.to] += chunks;
    } else {
      outer_out_[way.from_machine] += chunks;
      outer_in_[way.to_machine] += chunks;
    }
    if (way.over_spine) {
      spine_out_[way.from_leaf] += chunks;
      spine_in_[way.to_leaf] += chunks;
    }
    messages_.push_back({from, to});
  }

  void combine(int rank, int chunks) { combined_[static_cast<std::size_t>(rank)] += chunks; }

  // The lines of which the round's time is the maximum.
  std::vector<CostLine> lines(double chunk_share) const {
    std::vector<CostLine> found;
    for (const auto& [from, to] : messages_) {
      const Way way = way_between(from, to);
      double transfer =
          way.inner ? std::max(inner_out_[way.from], inner_in_[way.to]) / topology_.inner.bandwidth
                    : std::max(outer_out_[way.from_machine], outer_in_[way.to_machine]) /
                          topology_.outer.bandwidth;
      if (way.over_spine) {
        transfer = std::max({transfer, spine_out_[way.from_leaf] / uplinks_[way.from_leaf],
                             spine_in_[way.to_leaf] / uplinks_[way.to_leaf]});
      }
      const double combining = combined_[way.to] * topology_.gamma;
      keep_if_above(found, {std::max(starting_[way.from], accepting_[way.to]),
                            (transfer + combining) * chunk_share});
    }
    for (double combined : combined_) {
      if (combined > 0) keep_if_above(found, {0, combined * topology_.gamma * chunk_share});
    }
    return found;
  }

 private:
  struct Way {
    std::size_t from, to, from_machine, to_machine, from_leaf, to_leaf;
    bool inner;
    bool over_spine;
    double alpha;
  };

  Way way_between(int from, int to) const {
    const int from_machine = topology_.machine_of(from);
    const int to_machine = topology_.machine_of(to);
    const int from_leaf = topology_.leaf_of(from_machine);
    const int to_leaf = topology_.leaf_of(to_machine);
    const bool inner = from_machine == to_machine;
    const bool over_spine = from_leaf != to_leaf;
    const double alpha = inner ? topology_.inner.alpha
                               : topology_.outer.alpha + (over_spine ? topology_.spine_alpha : 0);
    const auto index = [](int i) { return static_cast<std::size_t>(i); };
    return {index(from),
            index(to),
            index(from_machine),
            index(to_machine),
            index(from_leaf),
            index(to_leaf),
            inner,
            over_spine,
            alpha};
  }

  static void keep_if_above(std::vector<CostLine>& lines, CostLine line) {
    const auto covers = [](const CostLine& a, const CostLine& b) {
      return a.seconds >= b.seconds && a.seconds_per_byte >= b.seconds_per_byte;
    };
    for (const CostLine& other : lines) {
      if (covers(other, line)) return;
    }
    std::erase_if(lines, [&](const CostLine& other) { return covers(line, other); });
    lines.push_back(line);
  }

  const Topology& topology_;
  std::vector<double> starting_, accepting_;  // seconds of start-up
  std::vector<double> inner_out_, inner_in_, combined_;
  std::vector<double> outer_out_, outer_in_;
  std::vector<double> spine_out_, spine_in_;
  std::vector<double> uplinks_;
  std::vector<std::pair<int, int>> messages_;
};

void sort_by_price(std::vector<Price>& prices) {
  std::stable_sort(prices.begin(), prices.end(),
                   [](const Price& a, const Price& b) { return a.seconds < b.seconds; });
}

}  // namespace

double Profile::seconds(double bytes) const {
  double total = 0;
  for (double round : round_seconds(bytes)) total += round;
  return total;
}

std::vector<double> Profile::round_seconds(double bytes) const {
  std::vector<double> seconds;
  seconds.reserve(rounds.size());
  for (const std::vector<CostLine>& lines : rounds) {
    double slowest = 0;
    for (const CostLine& line : lines) slowest = std::max(slowest, line.at(bytes));
    seconds.push_back(slowest);
  }
  return seconds;
}

Profile profile(const Schedule& schedule, const Topology& topology) {
  if (topology.ranks() != schedule.shape.ranks) {
    fail(ErrorCode::kInvalidArgument,
         "a schedule for {} ranks cannot be priced on a topology of {}", schedule.shape.ranks,
         topology.ranks());
  }
  Profile profile;
  Load load(topology);
  const double share = chunk_share(schedule);
  for (std::size_t round = 0; round < schedule.programs[0].rounds.size(); ++round) {
    load.clear();
    for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
      for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)].rounds[round]) {
        if (step.kind == StepKind::kSend) load.send(rank, step.peer, step.source.count);
        if (step.kind == StepKind::kReceiveReduce || step.kind == StepKind::kReduce) {
          load.combine(rank, step.target.count);
        }
      }
    }
    profile.rounds.push_back(load.lines(share));
  }
  return profile;
}

double cost(const Schedule& schedule, double bytes, const Topology& topology) {
  return profile(schedule, topology).seconds(bytes);
}

std::vector<Price> cheapest(Collective collective, double bytes, const Shape& shape,
                            const Topology& topology) {
  return PriceList(collective, shape, topology).at(bytes);
}

PriceList::PriceList(Collective collective, const Shape& shape, const Topology& topology) {
  Shape complete = shape;
  if (complete.machines.empty()) complete.machines = topology.machines;
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (algorithm.refuses(complete)) continue;
    entries_.push_back({&algorithm, profile(make_schedule(algorithm, complete), topology)});
  }
}

std::vector<Price> PriceList::at(double bytes) const {
  std::vector<Price> prices;
  for (const Entry& entry : entries_) {
    prices.push_back({entry.algorithm, entry.profile.seconds(bytes)});
  }
  sort_by_price(prices);
  return prices;
}

std::vector<PriceList::Reign> PriceList::reigns(double most_bytes) const {
  constexpr double kStep = 1.1;
  constexpr double kPrecision = 1.0005;
  const auto winner = [&](double bytes) { return at(bytes).front().algorithm; };
  std::vector<Reign> found{{1, winner(1)}};
  for (double low = 1; low < most_bytes; low *= kStep) {
    const double high = std::min(low * kStep, most_bytes);
    const Algorithm* next = winner(high);
    if (next == found.back().algorithm) continue;
    double before = low;
    double after = high;
    while (after > before * kPrecision) {
      const double middle = (before + after) / 2;
      (winner(middle) == found.back().algorithm ? before : after) = middle;
    }
    found.push_back({after, next});
  }
  return found;
}

}  // namespace lockstep::schedule
