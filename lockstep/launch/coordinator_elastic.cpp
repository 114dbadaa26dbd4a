// How an elastic job changes the number of its ranks, and of its nodes: see Coordinator.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/text/units.h"
#include "lockstep/launch/coordinator.h"

namespace lockstep {
namespace {

std::string counted_ranks(int ranks) {
  return ranks == 1 ? "1 rank" : fmt::format("{} ranks", ranks);
}

}  // namespace

int Coordinator::least_nodes() const {
  return options_.least_nodes > 0 ? options_.least_nodes : options_.nodes;
}

int Coordinator::count_here() const {
  return static_cast<int>(
      std::ranges::count_if(nodes_, [](const Node& node) { return !node.is_left_out; }));
}

std::string Coordinator::asked_size() const {
  const std::string ranks =
      options_.least == options_.ranks_per_node
          ? fmt::format("--ranks {}", options_.least)
          : fmt::format("--ranks {}:{}", options_.least, options_.ranks_per_node);
  if (options_.nodes == 1) return ranks;
  return least_nodes() == options_.nodes
             ? fmt::format("--nodes {} {}", options_.nodes, ranks)
             : fmt::format("--nodes {}:{} {}", least_nodes(), options_.nodes, ranks);
}

int Coordinator::count_replacements(const Node& node) const {
  if (node.is_left_out) return 0;
  return std::max(node.target - node.ranks, 0) + options_.spares - node.warm - node.starting;
}

// Every node that takes part has at least one: rank 0 stays on node 0.
std::string Coordinator::refusal_of(int ranks) const {
  const int nodes = count_here();
  if (ranks >= std::max(least_ranks(), nodes) && ranks <= nodes * options_.ranks_per_node)
    return "";
  std::string where = options_.nodes == 1 ? "" : fmt::format(", on {} of these nodes now", nodes);
  return fmt::format("the job cannot go on with {}: it runs with {}{}", ranks, asked_size(), where);
}

void Coordinator::resize(int ranks) {
  int left = ranks;
  int nodes = count_here();
  int missing = 0;
  for (Node& node : nodes_) {
    if (node.is_left_out) continue;
    node.target = (left + nodes - 1) / nodes;  // the first ones have one more
    left -= node.target;
    --nodes;
    missing += std::max(count_replacements(node), 0);
  }
  free_starts_ = std::max(free_starts_, missing);
}

// Until somebody asks again: each attempt stops all ranks, and the disk is as it was.
void Coordinator::stay(const JobMessage& stays) {
  if (!regroups_ || stays.count != regroup_requests_) return;
  regroups_ = false;
  regrouped_.clear();
  int asked = 0;
  for (Node& node : nodes_) {
    if (!node.is_left_out) asked += std::exchange(node.target, node.ranks);
  }
  prepare_notice(fmt::format(
      "the job keeps its {}: their states are in no checkpoint, and would be lost. When one can be "
      "saved, lockstep resize RUN {} asks for {} again",
      counted_ranks(size_), asked, counted_ranks(asked)));
}

// Its processes start beside the job. They are none of the budget's restarts: somebody has started
// the node.
void Coordinator::rest(int node) {
  Node& joined = nodes_[static_cast<std::size_t>(node)];
  joined = {.is_here = true, .is_ready = false, .target = options_.ranks_per_node};
  free_starts_ += count_replacements(joined);
  JobMessage message{.kind = JobMessage::Kind::kRest, .generation = generation_, .node = node};
  message.counts = counts();
  message.count = size_;
  message.job = job_;
  message.text = fmt::format("node {} is back: its ranks take part when they are ready", node);
  prepare(std::move(message));
}

bool Coordinator::may_be_left_out(int node) const {
  const Node& one = nodes_[static_cast<std::size_t>(node)];
  return is_elastic() && has_begun_ && node > 0 && !one.is_here && !one.is_left_out;
}

bool Coordinator::any_is_busy() const {
  return std::ranges::any_of(
      nodes_, [](const Node& node) { return node.is_here && !node.is_ready && !node.is_left_out; });
}

// Where the job is to stop, nobody waits for a node: the others have the states.
void Coordinator::leave_out_absent(Deadline now, bool asked_to_stop) {
  if (any_is_busy()) return;
  const bool any_kept =
      std::ranges::any_of(nodes_, [](const Node& node) { return !node.kept.empty(); });
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!may_be_left_out(static_cast<int>(i)) || (now < node.due && !asked_to_stop)) continue;
    node.is_left_out = true;
    node.ranks = 0;
    prepare_notice(
        asked_to_stop
            ? fmt::format("node {} is missing{}", i, any_kept ? ": the others save without it" : "")
            : fmt::format(
                  "node {} has not come back (--rejoin-timeout: {}) and is left out. The same "
                  "command there makes the job grow again",
                  i,
                  format_duration(std::chrono::duration<double>(options_.rejoin_timeout).count())));
  }
}

// Spares start after the job's first step: until then its leader may prepare the data that they
// open, and an error ends the job.
std::optional<Coordinator::Action> Coordinator::adapt(Deadline now, bool asked_to_stop) {
  if (!is_elastic() || budget_.furthest() == 0 || !finished_.empty()) return std::nullopt;
  if (regroups_) {
    if (regrouped_.size() < static_cast<std::size_t>(size_)) return std::nullopt;
    return regrouped(now);
  }
  if (asked_to_stop) return std::nullopt;
  JobMessage start{.kind = JobMessage::Kind::kStart, .generation = generation_};
  bool is_small = false;
  for (const Node& node : nodes_) {
    is_small = is_small || (!node.is_left_out && node.ranks < node.target);
  }
  start.text = is_small ? "take part" : "stand by";
  for (const Node& node : nodes_) {
    int count = 0;
    while (count < count_replacements(node) && (free_starts_ > 0 || budget_.take())) {
      free_starts_ = std::max(free_starts_ - 1, 0);
      ++count;
    }
    start.counts.push_back(count);
    start.count += count;
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) nodes_[i].starting += start.counts[i];
  if (start.count > 0) return Action{.tell = std::move(start)};

  bool grows = false;
  bool shrinks = false;
  int next = 0;
  for (const Node& node : nodes_) {
    if (node.is_left_out) continue;
    grows = grows || (node.ranks < node.target && node.warm > 0);
    shrinks = shrinks || node.ranks > node.target;
    next += std::min(node.ranks + node.warm, node.target);
  }
  if (!shrinks && (!grows || total(&Node::starting) > 0)) return std::nullopt;
  regroups_ = true;
  JobMessage message{
      .kind = JobMessage::Kind::kRegroup, .generation = generation_, .count = ++regroup_requests_};
  message.text =
      fmt::format("stopping {} after a step, to continue with {}", counted_ranks(size_), next);
  return Action{.tell = std::move(message)};
}

// All ranks have stopped after the same step.
Coordinator::Action Coordinator::regrouped(Deadline now) {
  recovers_ = true;
  failure_.reset();
  JobMessage message{.kind = JobMessage::Kind::kRecover, .generation = generation_};
  message.time = options_.grace;
  for (Node& node : nodes_) node.due = now + 2 * options_.grace + options_.rejoin_timeout;
  return Action{.tell = std::move(message)};
}

std::string Coordinator::too_few(int ranks, bool is_on_first_node) const {
  if (ranks < least_ranks()) {
    return fmt::format("{} left, and the job needs {} ({})",
                       ranks == 1 ? "1 rank is" : fmt::format("{} ranks are", ranks), least_ranks(),
                       asked_size());
  }
  if (count_here() < least_nodes()) {
    return fmt::format("{} left, and the job needs {} ({})",
                       count_here() == 1 ? "1 node is" : fmt::format("{} nodes are", count_here()),
                       least_nodes(), asked_size());
  }
  return is_on_first_node ? "" : "no rank is left on node 0, which has the run's folder";
}

// With as many ranks as there are now. Where one that has lost others is to blame for that, nobody
// knows: then it takes a restart, too.
Coordinator::Action Coordinator::begin_adapted(bool any_kept, bool asked_to_stop) {
  const int before = size_;
  const int failed = total(&Node::failed);
  std::vector<int> sizes;
  std::vector<int> wanted;  // with a restart; those that start already come later
  for (const Node& node : nodes_) {
    const int able = std::max(node.ranks - node.failed, 0);
    sizes.push_back(node.is_left_out ? 0 : std::min(able + node.warm, node.target));
    const int comes = std::max(node.starting - options_.spares, 0);
    wanted.push_back(node.is_left_out ? 0 : std::max(sizes.back(), node.target - comes));
  }
  int size = std::accumulate(sizes.begin(), sizes.end(), 0);
  const int target = std::accumulate(wanted.begin(), wanted.end(), 0);
  std::vector<std::string> say;
  if ((failed > 0 || lost_a_node_) && !failure_) {
    failure_ = Action::Failure{"ranks ended while the job was to continue with another number"};
  }
  const bool is_unexplained = failed == 0 && !lost_a_node_;
  if (failure_ && !asked_to_stop && (is_unexplained || size < target)) {
    const bool restarts = budget_.take();
    if (restarts) {
      sizes = wanted;
      size = target;
    }
    say.push_back(restarts
                      ? restarts_left()
                      : fmt::format("no restart is left (--max-restarts: {})", most_restarts()));
    if (!restarts && is_unexplained) return {.say = std::move(say), .end = failure_};
  }
  std::optional<Action::Failure> end;
  const bool is_on_first_node = sizes.front() > 0;
  const std::string few = too_few(size, is_on_first_node);
  if (!few.empty() && (!asked_to_stop || !is_on_first_node)) {
    const bool saves = any_kept && is_on_first_node;
    say.push_back(fmt::format("{}: it {}", few, saves ? "saves and ends" : "ends"));
    if (!failure_) failure_ = Action::Failure{few};
    end = failure_;
    if (!saves) return {.say = std::move(say), .end = end};
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    // These take part. The pool reports what is left when they do, which is too late for adapt().
    const int able = std::max(node.ranks - node.failed, 0);
    node.warm -= std::clamp(sizes[i] - able, 0, node.warm);
    node.ranks = sizes[i];
  }
  if (size != before) {
    say.push_back(
        fmt::format("the job continues with {} instead of {}", counted_ranks(size), before));
  }
  Action action = begin(any_kept);
  action.say = std::move(say);
  action.end_after = std::move(end);
  return action;
}

}  // namespace lockstep
