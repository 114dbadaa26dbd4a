#include "lockstep/bench/collectives/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/comm/native/selection.h"

namespace lockstep::bench {
namespace {

template <class List, class Value>
bool has(const List& list, const Value& value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

template <class Name>
void add_new(std::vector<std::string_view>& names, const Name& name) {
  if (!has(names, name)) names.emplace_back(name);
}

bool any_op_has(const std::vector<Collective>& ops, std::string_view algorithm) {
  return std::any_of(ops.begin(), ops.end(),
                     [&](Collective op) { return has(algorithm_names(op), algorithm); });
}

void check_algorithm(const CollectivesPlan& plan, const std::string& wanted) {
  if (any_op_has(plan.ops, wanted)) return;
  std::vector<std::string_view> ops;
  std::vector<std::string_view> names;
  for (const Collective op : plan.ops) {
    ops.push_back(name(op));
    for (const std::string_view one : algorithm_names(op)) add_new(names, one);
  }
  fail(ErrorCode::kInvalidArgument, "--algorithm: {} has no '{}'{}; expected one of {}",
       fmt::join(ops, ", "), wanted, did_you_mean(wanted, names), fmt::join(names, ", "));
}

// Of all ops: which of them the plan has is another matter.
std::vector<Implementation> all_peers() {
  std::vector<Implementation> all;
  for (const Collective op : kBenchOps) {
    for (Implementation& peer : peer_implementations(op)) {
      const bool known = std::any_of(
          all.begin(), all.end(), [&](const Implementation& one) { return one.name == peer.name; });
      if (!known) all.push_back(std::move(peer));
    }
  }
  return all;
}

void check_only(const CollectivesPlan& plan, const std::string& wanted) {
  const std::vector<Implementation> own = lockstep_implementations(plan.algorithms);
  const std::vector<Implementation> peers = all_peers();
  std::vector<std::string_view> names;
  for (const Implementation& one : own) names.emplace_back(one.name);
  if (has(names, wanted)) return;
  for (const Implementation& one : peers) {
    if (one.name == wanted && plan.peers) return;
    if (one.name == wanted) {
      fail(ErrorCode::kInvalidArgument, "--only: {} is a peer; add --peers", wanted);
    }
    if (plan.peers) names.emplace_back(one.name);
  }
  constexpr std::string_view kOwn = "lockstep-";
  if (wanted.starts_with(kOwn) && any_op_has(plan.ops, wanted.substr(kOwn.size()))) {
    fail(ErrorCode::kInvalidArgument,
         "--only: {} runs when its algorithm is named; add "
         "--algorithm {}",
         wanted, wanted.substr(kOwn.size()));
  }
  fail(ErrorCode::kInvalidArgument, "--only: unknown implementation '{}'{}; expected one of {}{}",
       wanted, did_you_mean(wanted, names), fmt::join(names, ", "),
       plan.peers ? "" : ", or with --peers one of the peers");
}

}  // namespace

std::vector<Implementation> contenders(const CollectivesPlan& plan, Collective op) {
  std::vector<Implementation> all = lockstep_implementations(plan.algorithms);
  if (plan.peers) {
    const auto peers = peer_implementations(op);
    all.insert(all.end(), peers.begin(), peers.end());
  }
  const auto algorithms = algorithm_names(op);
  std::erase_if(all, [&](const Implementation& one) {
    return (!plan.only.empty() && !has(plan.only, one.name)) ||
           (!one.algorithm.empty() && !has(algorithms, one.algorithm));
  });
  return all;
}

std::vector<std::string> settle(CollectivesPlan& plan) {
  for (const std::string& wanted : plan.algorithms) check_algorithm(plan, wanted);
  for (const std::string& wanted : plan.only) check_only(plan, wanted);
  std::vector<std::string> left_out;
  for (const Collective op : plan.ops) {
    const auto names = algorithm_names(op);
    for (const std::string& algorithm : plan.algorithms) {
      if (has(names, algorithm)) continue;
      left_out.push_back(fmt::format("{} has no algorithm '{}'; expected one of {}", name(op),
                                     algorithm, fmt::join(names, ", ")));
    }
  }
  const std::vector<Collective> asked = plan.ops;
  std::erase_if(plan.ops, [&](Collective op) { return contenders(plan, op).empty(); });
  for (const Collective op : asked) {
    if (has(plan.ops, op)) continue;
    left_out.push_back(fmt::format("no implementation in --only has {}", name(op)));
  }
  if (plan.ops.empty()) {
    fail(ErrorCode::kInvalidArgument, "nothing is left to measure: {}", fmt::join(left_out, "; "));
  }
  return left_out;
}

}  // namespace lockstep::bench
