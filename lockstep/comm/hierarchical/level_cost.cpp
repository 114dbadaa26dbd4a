#include "lockstep/comm/hierarchical/level_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/base/system/clock.h"

namespace lockstep::hierarchical {
namespace {

constexpr int kTurns = 5;
constexpr std::size_t kMostMeasured = std::size_t{4} << 20;
constexpr double kLeastSeconds = 1e-9;
constexpr DType kMeasuredType = DType::kU8;

// The shortest of several turns: other work on the machine only adds to a time.
double shortest(const std::function<void()>& call) {
  call();  // the first connects ranks
  double best = 1e9;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto start = SteadyClock::now();
    call();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

// An all_gather among the ranks of a level, from and to staging memory.
double seconds_to_gather(Communicator& level, std::byte* staging, std::size_t each) {
  const auto ranks = static_cast<std::size_t>(level.size());
  const auto me = static_cast<std::size_t>(level.rank());
  const Data all(staging, ranks * each, kMeasuredType);
  const ConstData mine(staging + me * each, each, kMeasuredType);
  return shortest([&] { level.all_gather(mine, all); });
}

struct LevelTimes {
  double small = 0;
  double large = 0;
  double bytes = 0;  // that a rank sends in the large one
};

LevelTimes times_of(Communicator& level, std::byte* staging, std::size_t staging_bytes) {
  const auto ranks = static_cast<std::size_t>(level.size());
  const std::size_t each = std::min(staging_bytes, kMostMeasured) / ranks;
  LevelTimes times;
  times.small = seconds_to_gather(level, staging, 1);
  times.large = seconds_to_gather(level, staging, each);
  times.bytes = static_cast<double>((ranks - 1) * each);
  return times;
}

double rounded(double figure) { return std::exp2(std::round(std::log2(figure))); }

schedule::Link link_of(double small, double large, double bytes) {
  return {.alpha = rounded(small),
          .bandwidth = rounded(bytes / std::max(large - small, kLeastSeconds))};
}

double of_ranks(double ranks) { return (ranks - 1) / ranks; }

// How often the bytes of a reduce_scatter go through the levels.
double passes(Collective kind) { return kind == Collective::kAllReduce ? 2 : 1; }

}  // namespace

LevelLinks assumed_level_links() {
  return {.inside = {.alpha = 10e-6, .bandwidth = 400e9},
          .across = {.alpha = 30e-6, .bandwidth = 25e9},
          .flat_start_up = 40e-6};
}

LevelLinks measured_level_links(Communicator& host, const Levels& levels, const NodeGrid& grid,
                                std::size_t staging_bytes) {
  std::byte* const staging = levels.staging.data();
  const LevelTimes inside = times_of(*levels.inside, staging, staging_bytes);
  host.barrier();  // all lanes begin together
  const LevelTimes across = times_of(*levels.across, staging, staging_bytes);
  const double flat = seconds_to_gather(*levels.flat, staging, 1);
  const std::array<double, 5> mine{inside.small, inside.large, across.small, across.large, flat};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(grid.ranks()));
  host.all_gather(std::span(mine), std::span(all));
  std::array<double, 5> slowest = mine;
  for (std::size_t i = 0; i < all.size(); ++i) {
    slowest[i % mine.size()] = std::max(slowest[i % mine.size()], all[i]);
  }
  return {.inside = link_of(slowest[0], slowest[1], inside.bytes),
          .across = link_of(slowest[2], slowest[3], across.bytes),
          .flat_start_up = rounded(slowest[4]),
          .is_measured = true};
}

double bytes_across_in_two_levels(const LevelCall& call, const NodeGrid& grid) {
  if (call.kind == Collective::kReduce) return call.bytes;
  return passes(call.kind) * of_ranks(grid.nodes) * call.bytes;
}

double bytes_across_in_one_level(const LevelCall& call, const NodeGrid& grid) {
  const bool is_reduce = call.kind == Collective::kReduce;
  if (call.is_exchange) {
    const double once = grid.places * of_ranks(grid.nodes) * call.bytes;
    return is_reduce ? once + call.bytes / grid.nodes : passes(call.kind) * once;
  }
  if (is_reduce) return call.bytes;
  return passes(call.kind) * of_ranks(grid.ranks()) * call.bytes;
}

double seconds_in_two_levels(const LevelCall& call, const NodeGrid& grid, const LevelLinks& links) {
  // Parts go inside before the lane and after it, or blocks of every node on one side of it.
  const bool is_parts = call.kind == Collective::kAllReduce || call.kind == Collective::kReduce;
  const double inside_calls = is_parts ? 2 : grid.nodes;
  const double start_ups =
      static_cast<double>(call.rounds) * (inside_calls * links.inside.alpha + links.across.alpha);
  const double inside = (is_parts ? 2 : 1) * of_ranks(grid.places) * call.bytes;
  const double across = bytes_across_in_two_levels(call, grid);
  return start_ups + inside / links.inside.bandwidth +
         across / (grid.places * links.across.bandwidth);
}

double seconds_in_one_level(const LevelCall& call, const NodeGrid& grid, const LevelLinks& links) {
  const double inside = passes(call.kind) * of_ranks(grid.ranks()) * call.bytes;
  const double across = bytes_across_in_one_level(call, grid);
  return links.flat_start_up +
         std::max(inside / links.inside.bandwidth, across / (grid.places * links.across.bandwidth));
}

}  // namespace lockstep::hierarchical
