#include "lockstep/comm/native/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/comm/shared/collectives.h"

namespace lockstep {
namespace {

// The size that prices go by: of the whole vector, as schedules count it.
double vector_bytes(const Call& call, int ranks) {
  const auto n = static_cast<double>(ranks);
  const auto element = static_cast<double>(size_of(dtype_of_call(call)));
  const auto in = static_cast<double>(call.in.count);
  const auto out = static_cast<double>(call.out.count);
  if (call.varying && call.kind != Collective::kAllToAll) {
    double total = 0;
    for (std::size_t count : call.counts) total += static_cast<double>(count);
    return total * element;
  }
  switch (call.kind) {
    case Collective::kScatter:
    case Collective::kReduceScatter:
      return out * n * element;
    case Collective::kGather:
    case Collective::kAllGather:
      return in * n * element;
    // Only pairs know the sizes of all_to_all_v, and all ranks must choose alike.
    case Collective::kAllToAll:
      return call.varying ? 1 : in * element;
    default:
      return in * element;
  }
}

Collective scheduled_as(Collective kind) {
  return kind == Collective::kBarrier ? Collective::kAllReduce : kind;
}

long long places_of(const std::vector<int>& grid) {
  return std::accumulate(grid.begin(), grid.end(), 1LL, std::multiplies<>());
}

constexpr std::string_view kHierarchical = "hierarchical";
constexpr double kHardlyDearer = 1.03;

}  // namespace

std::vector<std::string_view> algorithm_names(Collective collective) {
  std::vector<std::string_view> names{kFused};
  for (const schedule::Algorithm& algorithm : schedule::algorithms(collective)) {
    names.push_back(algorithm.name);
  }
  return names;
}

void check_algorithms(const CommOptions& options) {
  for (const Collective collective : kScheduledCollectives) {
    const std::string_view wanted = options.algorithm(collective);
    std::vector<std::string_view> names = algorithm_names(collective);
    names.insert(names.begin(), kAutoAlgorithm);
    if (std::find(names.begin(), names.end(), wanted) != names.end()) continue;
    const std::string key = fmt::format("comm.algorithm.{}", name(collective));
    fail(ErrorCode::kInvalidArgument,
         "{} ({}) is '{}'{}, which is not an algorithm of {}; expected one of {}", key,
         Config::environment_name(key), wanted, did_you_mean(wanted, names), name(collective),
         fmt::join(names, ", "));
  }
}

void check_grid(const CommOptions& options, int ranks) {
  const std::vector<int> grid = options.grid_extents();
  if (grid.empty() || places_of(grid) == ranks) return;
  fail(ErrorCode::kInvalidArgument,
       "comm.grid ({}) = {} has {} places, but there are {} ranks; give extents that multiply to "
       "{}, or leave it out",
       Config::environment_name("comm.grid"), options.grid, places_of(grid), ranks, ranks);
}

Selector::Selector(std::vector<int> machines, bool fused, const CommOptions& options,
                   const Links& links)
    : fused_(fused), options_(options), links_(links) {
  shape_.ranks = static_cast<int>(machines.size());
  shape_.machines = machines;
  const std::vector<int> grid = options_.grid_extents();
  if (places_of(grid) == shape_.ranks) shape_.grid = grid;
  // Ranks that may not share memory, or have NICs of their own, are joined alike wherever they
  // are.
  flat_ = options_.transport == TransportChoice::kTcp ||
          (!options_.emulate.empty() && options_.emulated_nodes == 1);
  if (flat_) {
    topology_ = schedule::flat_topology(shape_.ranks, links_.outer);
  } else {
    schedule::Network network;
    network.inner = links_.inner;
    network.outer = links_.outer;
    topology_ = network.with_machines(machines);
  }
  topology_.gamma = links_.gamma;
  const std::set<int> distinct(machines.begin(), machines.end());
  several_per_machine_ = distinct.size() > 1 && distinct.size() < machines.size();
  for (std::size_t kind = 0; kind < kCollectives; ++kind) {
    const std::string_view chosen = options_.algorithm(static_cast<Collective>(kind));
    fused_by_default_[kind] = fused_ && (chosen == kAutoAlgorithm || chosen == kFused);
  }
}

bool Selector::is_fused(const Call& call) const {
  const bool wanted = call.algorithm.empty()
                          ? fused_by_default_[static_cast<std::size_t>(call.kind)]
                          : fused_ && call.algorithm == kFused;
  return wanted && shared::serves(call);
}

std::string_view Selector::forced(const Call& call) const {
  if (!call.algorithm.empty()) return call.algorithm;
  const std::string_view configured = options_.algorithm(call.kind);
  // Where fused does not serve a configured collective, its schedules do.
  return configured == kAutoAlgorithm || configured == kFused ? std::string_view() : configured;
}

// All algorithms for the call, the one to take first.
std::vector<schedule::Price> Selector::ranking(const Call& call) const {
  const Collective kind = scheduled_as(call.kind);
  auto list = prices_.find(kind);
  if (list == prices_.end()) {
    list = prices_.emplace(kind, schedule::PriceList(kind, shape_, topology_)).first;
  }
  std::vector<schedule::Price> prices = list->second.at(vector_bytes(call, shape_.ranks));
  // Where others are hardly cheaper, one stream per node beats several that share its port.
  for (std::size_t i = 1; i < prices.size(); ++i) {
    const bool near = prices[i].seconds <= prices[0].seconds * kHardlyDearer;
    if (near && prices[i].algorithm->name == kHierarchical && several_per_machine_) {
      std::rotate(prices.begin(), prices.begin() + static_cast<long>(i),
                  prices.begin() + static_cast<long>(i) + 1);
    }
  }
  return prices;
}

std::string Selector::algorithm(const Call& call) const {
  if (is_fused(call)) return std::string(kFused);
  if (const std::string_view name = forced(call); !name.empty()) {
    if (name == kFused) {
      fail(ErrorCode::kUnsupported,
           "{} by {}: it needs all ranks on one node, links that are not emulated and block sizes "
           "that all ranks know; set the algorithm to auto",
           describe(call), kFused);
    }
    return std::string(name);
  }
  std::string& chosen = chosen_[{scheduled_as(call.kind), vector_bytes(call, shape_.ranks)}];
  if (chosen.empty()) chosen = ranking(call).front().algorithm->name;
  return chosen;
}

Choice Selector::choose(const Call& call) const {
  const std::string chosen = algorithm(call);
  if (chosen == kFused) {
    return {chosen, shape_.ranks == 1 ? "there is one rank"
                                      : fmt::format("all {} ranks share one node", shape_.ranks)};
  }
  if (!forced(call).empty()) return {chosen, "forced"};
  const auto prices = ranking(call);
  std::string why = fmt::format("cheapest of {} on links {} as", prices.size(), links_.source);
  const auto say = [&](std::string_view what, const schedule::Link& link) {
    why += fmt::format(" {} {} {}", what, format_seconds(link.alpha),
                       format_bytes_per_second(link.bandwidth));
  };
  if (!flat_) say("inner", links_.inner);
  say("outer", links_.outer);
  for (std::size_t i = 0; i < std::min<std::size_t>(2, prices.size()); ++i) {
    why += fmt::format("{} {} {}", i == 0 ? ":" : ",", prices[i].algorithm->name,
                       format_seconds(prices[i].seconds));
  }
  return {chosen, why};
}

}  // namespace lockstep
