// No fast method finds the smallest layout (the problem is NP-hard), but greedy ones come close.
//
// A *sweep* walks through the steps and keeps the gaps between the requests that live at the
// current one, as an allocator does: n log n for n requests. It is done forwards and backwards in
// time.
//
// A *search* takes the requests in some order and puts each into a gap between all those it meets,
// which takes n squared. Which order is best depends on the requests, so several are tried and the
// smallest layout is kept. Only few requests are searched; they are also the ones that gain most.
#include "lockstep/tensor/layout.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Order = std::vector<std::size_t>;  // indices of requests

// Into which of the gaps that are wide enough.
enum class Fit { kLowest, kTightest };

// With more requests than this a search would take seconds.
constexpr std::size_t kMostSearched = 4096;

// How often an order is repaired (see with_top_first): small layouts gain most and cost least.
int repairs(std::size_t requests) {
  return static_cast<int>(
      std::clamp(4000 / std::max(requests, std::size_t{1}), std::size_t{2}, std::size_t{32}));
}

struct Placement {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};

struct Placed {
  std::size_t begin;
  std::size_t end;
  int first_step;
  int last_step;
};

// `placed` is sorted by where requests begin.
std::size_t find_gap(const std::vector<Placed>& placed, const Request& request, Fit fit) {
  const std::size_t needed = padded_bytes(request);
  std::size_t best = 0;
  std::size_t best_width = std::numeric_limits<std::size_t>::max();
  std::size_t free_from = 0;
  for (const Placed& other : placed) {
    if (other.last_step < request.first_step || request.last_step < other.first_step) continue;
    if (other.begin >= free_from + needed) {
      const std::size_t width = other.begin - free_from;
      if (fit == Fit::kLowest) return free_from;
      if (width < best_width) {
        best = free_from;
        best_width = width;
      }
    }
    free_from = std::max(free_from, other.end);
  }
  const bool found = best_width != std::numeric_limits<std::size_t>::max();
  return found ? best : free_from;
}

Placement place(std::span<const Request> requests, const Order& order, Fit fit) {
  Placement placement;
  placement.offsets.resize(requests.size());
  std::vector<Placed> placed;
  placed.reserve(requests.size());
  for (const std::size_t index : order) {
    const Request& request = requests[index];
    if (request.bytes == 0) continue;
    const std::size_t begin = find_gap(placed, request, fit);
    const std::size_t end = begin + padded_bytes(request);
    const auto at = std::upper_bound(
        placed.begin(), placed.end(), begin,
        [](std::size_t offset, const Placed& other) { return offset < other.begin; });
    placed.insert(at, {begin, end, request.first_step, request.last_step});
    placement.offsets[index] = begin;
    placement.bytes = std::max(placement.bytes, end);
  }
  return placement;
}

// `key` gives what is compared; requests of equal keys stay in their given order.
template <class Key>
Order ordered_by(std::span<const Request> requests, Key key) {
  Order order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return key(requests[a]) < key(requests[b]);
  });
  return order;
}

std::int64_t steps(const Request& request) {
  return std::int64_t{request.last_step} - request.first_step + 1;
}

std::vector<Order> orders_to_try(std::span<const Request> requests) {
  const auto largest_first = [](const Request& r) { return ~padded_bytes(r); };
  std::vector<Order> orders;
  // Optimal for nested lifetimes: all that a request then meets hold it, and lie without gaps.
  orders.push_back(
      ordered_by(requests, [&](const Request& r) { return std::tuple(r.first_step, -steps(r)); }));
  orders.push_back(ordered_by(
      requests, [&](const Request& r) { return std::tuple(largest_first(r), -steps(r)); }));
  orders.push_back(ordered_by(
      requests, [&](const Request& r) { return std::tuple(-steps(r), largest_first(r)); }));
  orders.push_back(ordered_by(requests, [](const Request& r) {
    return -static_cast<double>(padded_bytes(r)) * static_cast<double>(steps(r));
  }));
  return orders;
}

// The order with the requests first that end last in the placement it gave: those that were left
// without a good place get the first choice.
Order with_top_first(std::span<const Request> requests, Order order, const Placement& placement) {
  std::stable_partition(order.begin(), order.end(), [&](std::size_t index) {
    return placement.offsets[index] + padded_bytes(requests[index]) == placement.bytes;
  });
  return order;
}

// The bytes that are free between those that are taken, and all behind the last of them.
class Gaps {
 public:
  // Takes the tightest gap that is wide enough, of equal ones the lowest. Returns where it begins.
  std::size_t take(std::size_t bytes) {
    const auto tightest = by_width_.lower_bound({bytes, 0});
    if (tightest == by_width_.end()) return std::exchange(end_, end_ + bytes);
    const auto [width, begin] = *tightest;
    remove(begin, width);
    if (width > bytes) add(begin + bytes, width - bytes);
    return begin;
  }

  void give_back(std::size_t begin, std::size_t bytes) {
    const auto behind = widths_.lower_bound(begin);
    if (behind != widths_.end() && behind->first == begin + bytes) {
      const std::size_t width = behind->second;
      remove(begin + bytes, width);
      bytes += width;
    }
    const auto after = widths_.lower_bound(begin);
    if (after != widths_.begin()) {
      const auto [before, width] = *std::prev(after);
      if (before + width == begin) {
        remove(before, width);
        begin = before;
        bytes += width;
      }
    }
    if (begin + bytes == end_) {
      end_ = begin;
    } else {
      add(begin, bytes);
    }
  }

 private:
  void add(std::size_t begin, std::size_t width) {
    widths_[begin] = width;
    by_width_.emplace(width, begin);
  }
  void remove(std::size_t begin, std::size_t width) {
    widths_.erase(begin);
    by_width_.erase({width, begin});
  }

  std::map<std::size_t, std::size_t> widths_;               // by begin
  std::set<std::pair<std::size_t, std::size_t>> by_width_;  // width and begin
  std::size_t end_ = 0;                                     // of the last that is taken
};

enum class Direction { kForwards, kBackwards };

// The first and the last step of a request as a sweep in that direction meets them.
std::pair<std::int64_t, std::int64_t> lifetime(const Request& request, Direction direction) {
  if (direction == Direction::kForwards) return {request.first_step, request.last_step};
  return {-std::int64_t{request.last_step}, -std::int64_t{request.first_step}};
}

// Requests that begin together are placed with the longest first: then the layout of nested
// lifetimes has no gaps, since all that a request meets hold it and end behind it.
Placement sweep(std::span<const Request> requests, Direction direction) {
  const Order order = ordered_by(requests, [&](const Request& request) {
    const auto [first, last] = lifetime(request, direction);
    return std::tuple(first, -last);
  });
  Placement placement;
  placement.offsets.resize(requests.size());
  Gaps gaps;
  std::set<std::pair<std::int64_t, std::size_t>> live;  // last step and index
  for (const std::size_t index : order) {
    const auto [first, last] = lifetime(requests[index], direction);
    const std::size_t bytes = padded_bytes(requests[index]);
    if (bytes == 0) continue;
    while (!live.empty() && live.begin()->first < first) {
      const std::size_t ended = live.begin()->second;
      gaps.give_back(placement.offsets[ended], padded_bytes(requests[ended]));
      live.erase(live.begin());
    }
    placement.offsets[index] = gaps.take(bytes);
    placement.bytes = std::max(placement.bytes, placement.offsets[index] + bytes);
    live.emplace(last, index);
  }
  return placement;
}

// Stops as soon as a placement has no more than `enough` bytes.
Placement search(std::span<const Request> requests, std::size_t enough, Placement best) {
  for (const Order& first : orders_to_try(requests)) {
    for (const Fit fit : {Fit::kLowest, Fit::kTightest}) {
      Order order = first;
      for (int repair = 0; repair <= repairs(requests.size()); ++repair) {
        if (best.bytes <= enough) return best;
        Placement placement = place(requests, order, fit);
        order = with_top_first(requests, std::move(order), placement);
        if (placement.bytes < best.bytes) best = std::move(placement);
      }
    }
  }
  return best;
}

void check(std::span<const Request> requests) {
  std::size_t sum = 0;
  for (const Request& request : requests) {
    if (request.last_step < request.first_step) {
      fail(ErrorCode::kInvalidArgument,
           "'{}' is requested from step {} to step {}, which is earlier", request.name,
           request.first_step, request.last_step);
    }
    constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
    if (request.bytes > kMost - Layout::kAlignment || padded_bytes(request) > kMost - sum) {
      fail(ErrorCode::kInvalidArgument, "the requests up to the {} bytes of '{}' exceed any memory",
           request.bytes, request.name);
    }
    sum += padded_bytes(request);
  }
}

// Sets lower_bound and peak_step from a running sum of what begins and ends at each step.
void find_peak(std::span<const Request> requests, Layout& layout) {
  struct Change {
    std::int64_t step;
    bool begins;
    std::size_t bytes;
  };
  std::vector<Change> changes;
  for (const Request& request : requests) {
    changes.push_back({request.first_step, true, padded_bytes(request)});
    changes.push_back({std::int64_t{request.last_step} + 1, false, padded_bytes(request)});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tuple(a.step, a.begins) < std::tuple(b.step, b.begins);
  });
  std::size_t live = 0;
  for (const Change& change : changes) {
    if (!change.begins) {
      live -= change.bytes;
      continue;
    }
    live += change.bytes;
    if (live > layout.lower_bound) {
      layout.lower_bound = live;
      layout.peak_step = static_cast<int>(change.step);
    }
  }
}

}  // namespace

Layout bound_layout(std::span<const Request> requests) {
  check(requests);
  Layout layout;
  find_peak(requests, layout);
  layout.bytes = layout.lower_bound;
  return layout;
}

Layout plan_layout(std::span<const Request> requests) {
  Layout layout = bound_layout(requests);
  Placement best = sweep(requests, Direction::kForwards);
  if (best.bytes > layout.lower_bound) {
    Placement backwards = sweep(requests, Direction::kBackwards);
    if (backwards.bytes < best.bytes) best = std::move(backwards);
  }
  if (requests.size() <= kMostSearched) {
    best = search(requests, layout.lower_bound, std::move(best));
  }
  layout.offsets = std::move(best.offsets);
  layout.bytes = best.bytes;
  return layout;
}

std::vector<GroupBytes> bytes_by_group(std::span<const Request> requests, int step) {
  std::vector<GroupBytes> groups;
  for (const Request& request : requests) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const GroupBytes& candidate) {
      return candidate.group == request.group;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {request.group, 0});
    const bool lives = request.first_step <= step && step <= request.last_step;
    if (lives) group->bytes += padded_bytes(request);
  }
  return groups;
}

}  // namespace lockstep
