#include "lockstep/comm/schedule/load.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace lockstep::schedule {
namespace {

std::size_t place(int i) { return static_cast<std::size_t>(i); }

void keep_if_above(std::vector<CostLine>& lines, CostLine line) {
  const auto covers = [](const CostLine& a, const CostLine& b) {
    return a.seconds >= b.seconds && a.seconds_per_byte >= b.seconds_per_byte;
  };
  for (const CostLine& other : lines) {
    if (covers(other, line)) return;
  }
  std::erase_if(lines, [&](const CostLine& other) { return covers(line, other); });
  lines.push_back(line);
}

}  // namespace

Load::Load(const Topology& topology) : topology_(topology) {
  const int machines = topology.count_machines();
  ranks_of_machine_.resize(place(machines));
  for (const int machine : topology.machines) ++ranks_of_machine_[place(machine)];
  const int leaves = machines > 0 ? 1 + topology.leaf_of(machines - 1) : 0;
  ranks_of_leaf_.resize(place(leaves));
  std::vector<int> seen(place(machines));
  std::size_t roots = 0;
  std::vector<std::size_t> first_root(place(machines));
  const int per_root = topology.ranks_per_root > 0 ? topology.ranks_per_root : topology.ranks();
  for (int machine = 0; machine < machines; ++machine) {
    first_root[place(machine)] = roots;
    roots += place((ranks_of_machine_[place(machine)] + per_root - 1) / per_root);
  }
  for (const int machine : topology.machines) {
    const int local = seen[place(machine)]++;
    const int here = ranks_of_machine_[place(machine)];
    const int nics = topology.nics_per_machine;
    nic_.push_back(place(machine * nics + (here < nics ? local : local * nics / here)));
    root_.push_back(first_root[place(machine)] + place(local / per_root));
    ++ranks_of_leaf_[place(topology.leaf_of(machine))];
  }
  const std::size_t ranks = topology.machines.size();
  for (auto* by_rank : {&starting_, &accepting_, &inner_out_, &inner_in_, &combined_}) {
    by_rank->resize(ranks);
  }
  for (auto* by_nic : {&outer_out_, &outer_in_}) {
    by_nic->resize(place(machines * topology.nics_per_machine));
  }
  for (auto* by_root : {&root_out_, &root_in_}) by_root->resize(roots);
  for (auto* by_leaf : {&spine_out_, &spine_in_}) by_leaf->resize(place(leaves));
  links_.resize(place(machines) * 2 * topology.torus.size());
  for (int leaf = 0; topology.machines_per_leaf > 0 && leaf < leaves; ++leaf) {
    uplinks_.push_back(topology.uplink_bandwidth(leaf));
  }
}

Load::Way Load::way_between(int from, int to) const {
  const int from_machine = topology_.machine_of(from);
  const int to_machine = topology_.machine_of(to);
  const int from_leaf = topology_.leaf_of(from_machine);
  const int to_leaf = topology_.leaf_of(to_machine);
  Way way{.from = place(from),
          .to = place(to),
          .from_machine = from_machine,
          .to_machine = to_machine,
          .from_nic = nic_[place(from)],
          .to_nic = nic_[place(to)],
          .from_root = root_[place(from)],
          .to_root = root_[place(to)],
          .from_leaf = place(from_leaf),
          .to_leaf = place(to_leaf),
          .inner = from_machine == to_machine,
          .over_roots = false,
          .over_spine = from_leaf != to_leaf,
          .alpha = topology_.inner.alpha};
  way.over_roots = topology_.ranks_per_root > 0 &&
                   (way.inner ? topology_.inner_over_roots && way.from_root != way.to_root : true);
  if (way.inner) return way;
  way.alpha = topology_.outer.alpha + (way.over_spine ? topology_.spine_alpha : 0);
  if (topology_.hop_alpha > 0) {
    way.alpha += (hops(from_machine, to_machine) - 1) * topology_.hop_alpha;
  }
  return way;
}

// The shorter way round each extent, the fastest extent first; where both are as long, upwards.
template <class Visit>
void Load::walk(int from, int to, Visit&& visit) const {
  int stride = 1;
  int at = from;
  const std::size_t extents = topology_.torus.size();
  for (std::size_t axis = extents; axis-- > 0;) {
    const int extent = topology_.torus[axis];
    const int distance = (to / stride % extent - at / stride % extent + extent) % extent;
    const bool up = 2 * distance <= extent;
    for (int left = up ? distance : extent - distance; left > 0; --left) {
      visit((place(at) * extents + axis) * 2 + (up ? 0 : 1));
      const int index = at / stride % extent;
      at += ((index + (up ? 1 : extent - 1)) % extent - index) * stride;
    }
    stride *= extent;
  }
}

int Load::hops(int from, int to) const {
  int count = 0;
  walk(from, to, [&](std::size_t) { ++count; });
  return count;
}

void Load::clear() {
  if (is_full_) {
    for (auto* loads : {&starting_, &accepting_, &inner_out_, &inner_in_, &combined_, &outer_out_,
                        &outer_in_, &root_out_, &root_in_, &spine_out_, &spine_in_, &links_}) {
      std::fill(loads->begin(), loads->end(), 0.0);
    }
  }
  for (const Way& way : messages_) {
    starting_[way.from] = accepting_[way.to] = 0;
    inner_out_[way.from] = inner_in_[way.to] = 0;
    outer_out_[way.from_nic] = outer_in_[way.to_nic] = 0;
    root_out_[way.from_root] = root_in_[way.to_root] = 0;
    spine_out_[way.from_leaf] = spine_in_[way.to_leaf] = 0;
    walk(way.from_machine, way.to_machine, [&](std::size_t link) { links_[link] = 0; });
  }
  for (const int rank : combining_) combined_[place(rank)] = 0;
  messages_.clear();
  combining_.clear();
  is_full_ = false;
}

void Load::send(int from, int to, double chunks) {
  const Way way = way_between(from, to);
  starting_[way.from] += way.alpha;
  accepting_[way.to] += way.alpha;
  if (way.inner) {
    inner_out_[way.from] += chunks;
    inner_in_[way.to] += chunks;
  } else if (topology_.torus.empty()) {
    outer_out_[way.from_nic] += chunks;
    outer_in_[way.to_nic] += chunks;
  } else {
    walk(way.from_machine, way.to_machine, [&](std::size_t link) { links_[link] += chunks; });
  }
  if (way.over_roots) {
    root_out_[way.from_root] += chunks;
    root_in_[way.to_root] += chunks;
  }
  if (way.over_spine) {
    spine_out_[way.from_leaf] += chunks;
    spine_in_[way.to_leaf] += chunks;
  }
  messages_.push_back(way);
}

void Load::combine(int rank, double chunks) {
  combined_[place(rank)] += chunks;
  combining_.push_back(rank);
}

void Load::send_among_all(double chunks, bool combines) {
  is_full_ = true;
  const int n = topology_.ranks();
  std::vector<int> ranks_of_root(root_out_.size());
  for (const std::size_t root : root_) ++ranks_of_root[root];
  for (int rank = 0; rank < n; ++rank) {
    const std::size_t r = place(rank);
    const int machine = topology_.machine_of(rank);
    const int leaf = topology_.leaf_of(machine);
    const int here = ranks_of_machine_[place(machine)];
    const int beyond = n - ranks_of_leaf_[place(leaf)];
    starting_[r] += (here - 1) * topology_.inner.alpha + (n - here) * topology_.outer.alpha +
                    beyond * topology_.spine_alpha;
    accepting_[r] = starting_[r];
    inner_out_[r] += (here - 1) * chunks;
    inner_in_[r] = inner_out_[r];
    outer_out_[nic_[r]] += (n - here) * chunks;
    outer_in_[nic_[r]] = outer_out_[nic_[r]];
    if (topology_.ranks_per_root > 0) {
      const int inside = topology_.inner_over_roots ? here - ranks_of_root[root_[r]] : 0;
      root_out_[root_[r]] += (n - here + inside) * chunks;
      root_in_[root_[r]] = root_out_[root_[r]];
    }
    spine_out_[place(leaf)] += beyond * chunks;
    spine_in_[place(leaf)] = spine_out_[place(leaf)];
    if (combines) combine(rank, (n - 1) * chunks);
  }
  choose_examples();
}

// Of all pairs of ranks, some of each kind: ranks with the same loads, and how two of them lie to
// each other (same node, same root, same leaf).
void Load::choose_examples() {
  std::map<std::tuple<double, double, double, double, double>, std::vector<int>> kinds;
  for (int rank = 0; rank < topology_.ranks(); ++rank) {
    const std::size_t r = place(rank);
    const int machine = topology_.machine_of(rank);
    kinds[{starting_[r], inner_out_[r], outer_out_[nic_[r]], root_out_[root_[r]],
           spine_out_[place(topology_.leaf_of(machine))]}]
        .push_back(rank);
  }
  std::set<int> chosen;
  for (const auto& [loads, ranks] : kinds) {
    const auto choose = [&](auto&& differs) {
      const auto found = std::ranges::find_if(
          ranks, [&](int rank) { return differs(way_between(ranks.front(), rank)); });
      if (found != ranks.end()) chosen.insert(*found);
    };
    chosen.insert(ranks.front());
    choose([&](const Way& way) { return way.from != way.to && way.from_root == way.to_root; });
    choose([&](const Way& way) { return way.inner && way.from_root != way.to_root; });
    choose([&](const Way& way) { return !way.inner && !way.over_spine; });
    choose([&](const Way& way) { return way.over_spine; });
  }
  for (const int from : chosen) {
    for (const int to : chosen) {
      if (from != to) messages_.push_back(way_between(from, to));
    }
  }
}

double Load::seconds_per_chunk(const Way& way) const {
  double seconds = 0;
  if (way.inner) {
    seconds = std::max(inner_out_[way.from], inner_in_[way.to]) / topology_.inner.bandwidth;
  } else if (topology_.torus.empty()) {
    seconds = std::max(outer_out_[way.from_nic], outer_in_[way.to_nic]) / topology_.outer.bandwidth;
  } else {
    double most = 0;
    walk(way.from_machine, way.to_machine,
         [&](std::size_t link) { most = std::max(most, links_[link]); });
    seconds = most / topology_.outer.bandwidth;
  }
  if (way.over_roots) {
    seconds = std::max(seconds, std::max(root_out_[way.from_root], root_in_[way.to_root]) /
                                    topology_.root_bandwidth);
  }
  if (way.over_spine) {
    seconds = std::max({seconds, spine_out_[way.from_leaf] / uplinks_[way.from_leaf],
                        spine_in_[way.to_leaf] / uplinks_[way.to_leaf]});
  }
  return seconds;
}

std::vector<CostLine> Load::lines(double chunk_share) const {
  std::vector<CostLine> found;
  for (const Way& way : messages_) {
    const double combining = combined_[way.to] * topology_.gamma;
    keep_if_above(found, {std::max(starting_[way.from], accepting_[way.to]),
                          (seconds_per_chunk(way) + combining) * chunk_share});
  }
  for (const int rank : combining_) {
    keep_if_above(found, {0, combined_[place(rank)] * topology_.gamma * chunk_share});
  }
  return found;
}

}  // namespace lockstep::schedule
