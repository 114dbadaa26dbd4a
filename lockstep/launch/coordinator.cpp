#include "lockstep/launch/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/text/units.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// A report of the rank that others blame may come from another node.
constexpr milliseconds kBlameTimeout{500};
// Until ranks notice that another machine does not answer (comm/native/acceptor.cpp), and some.
constexpr std::chrono::seconds kMachineTimeout{40};

std::string duration(milliseconds time) {
  return format_duration(std::chrono::duration<double>(time).count());
}

}  // namespace

Coordinator::Coordinator(const Options& options, std::span<const NodeFacts> facts)
    : options_(options), budget_(options.restarts), job_(facts.front().job) {
  // Launchers of one that has died wait for this one.
  std::string former;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const bool is_here = facts[i].ranks > 0;
    nodes_.push_back({.is_here = is_here,
                      .is_left_out = !is_here,
                      .kept = facts[i].kept,
                      .ranks = is_here ? options.ranks_per_node : 0,
                      .target = options.ranks_per_node});
    free_starts_ += is_here ? options.spares : 0;
    if (i == 0 || facts[i].generation < 0) continue;
    generation_ = std::max(generation_, facts[i].generation);
    if (former.empty()) former = facts[i].job;
    if (facts[i].job == former) continue;
    next_.push_front({.end = Action::Failure{fmt::format(
                          "the launcher of node {} waits for another job than that of another "
                          "node: end the launchers of all nodes and start them again",
                          i)}});
  }
  size_ = total(&Node::ranks);
  if (!former.empty()) {
    prepare_notice("node 0 is back; its launcher counts restarts anew");
  }
}

int Coordinator::total(int Node::*number) const {
  int sum = 0;
  for (const Node& node : nodes_) sum += node.*number;
  return sum;
}

int Coordinator::first_rank(int node) const {
  int first = 0;
  for (int i = 0; i < node; ++i) first += nodes_[static_cast<std::size_t>(i)].ranks;
  return first;
}

int Coordinator::node_of(int rank) const {
  int node = 0;
  while (node + 1 < options_.nodes && first_rank(node + 1) <= rank) ++node;
  return node;
}

std::vector<int> Coordinator::counts() const {
  std::vector<int> counts;
  for (const Node& node : nodes_) counts.push_back(node.is_left_out ? -1 : node.ranks);
  return counts;
}

nanoseconds Coordinator::time_to_notice() const {
  constexpr int kSteps = 3;
  return options_.grace + kSteps * longest_step_;
}

std::string Coordinator::ranks_of(int node) const {
  const int first = first_rank(node);
  const int ranks = nodes_[static_cast<std::size_t>(node)].ranks;
  return ranks == 1 ? fmt::format("rank {}", first)
                    : fmt::format("ranks {} to {}", first, first + ranks - 1);
}

void Coordinator::reach(std::int64_t step, Deadline now) {
  budget_.reach(step, now);
  if (last_step_) longest_step_ = std::max(longest_step_, nanoseconds(now - *last_step_));
  last_step_ = now;
}

void Coordinator::hear(int node, const JobMessage& message, Deadline now) {
  if (message.kind == JobMessage::Kind::kResize) return resize(message.count);
  if (message.generation != generation_) return;
  Node& from = nodes_[static_cast<std::size_t>(node)];
  switch (message.kind) {
    case JobMessage::Kind::kLost: {
      if (recovers_ || (loss_ && !loss_->message.blames)) return;
      const bool waits = message.blames && options_.nodes > 1;
      loss_ = Loss{
          .message = message, .decide_by = waits ? now + kBlameTimeout : now, .is_said = node == 0};
      loss_->message.node = node;
      return;
    }
    case JobMessage::Kind::kWaits:
      if (message.regrouped) {
        regrouped_.insert(message.rank);
        return;
      }
      waiting_.push_back({message.rank, message.text, message.ranks});
      if (lost_by_ == kNoDeadline) lost_by_ = now + time_to_notice();
      return;
    case JobMessage::Kind::kReady:
      from.is_ready = recovers_ && from.is_here;
      from.kept = message.ranks;
      from.failed = message.count;
      return;
    case JobMessage::Kind::kPool:
      from.warm = message.warm;
      from.starting = message.starting;
      return;
    case JobMessage::Kind::kSlow:
      return evict(message);
    case JobMessage::Kind::kStays:
      return stay(message);
    default:
      return;
  }
}

// A slow job is better than one that has no restart left when a rank dies.
void Coordinator::evict(const JobMessage& slow) {
  const bool all_train = !recovers_ && !regroups_ && !loss_ && finished_.empty();
  if (!all_train || !next_.empty() || slow.ranks.empty()) return;
  const Node& its_node = nodes_[static_cast<std::size_t>(node_of(slow.ranks.front()))];
  if (its_node.warm == 0 && budget_.left() < 2) return;
  JobMessage message = slow;
  message.kind = JobMessage::Kind::kEvict;
  prepare(std::move(message));
}

bool Coordinator::counts_on(int node) const {
  const Node& one = nodes_[static_cast<std::size_t>(node)];
  return one.is_here && (recovers_ || one.ranks == 0);
}

void Coordinator::leave(int node, Deadline now) {
  Node& left = nodes_[static_cast<std::size_t>(node)];
  const bool has_ranks = left.ranks > 0;
  // What rest() has granted.
  if (!has_ranks) free_starts_ = std::max(free_starts_ - std::max(count_replacements(left), 0), 0);
  left = {.is_here = false,
          .is_ready = false,
          .is_left_out = left.is_left_out || !has_ranks,
          .due = now + options_.rejoin_timeout,
          .ranks = left.ranks,
          .target = left.target};
  if (!has_ranks) return prepare_notice(fmt::format("lost node {}, which had no ranks", node));
  told_absence_ = false;
  lost_a_node_ = true;
  if (recovers_) return;
  JobMessage message;
  message.text = fmt::format("lost node {} ({}): its launcher died, or it cannot be reached", node,
                             ranks_of(node));
  message.leave = true;
  loss_ = Loss{.message = std::move(message), .decide_by = now};
}

void Coordinator::join(int node, const NodeFacts& facts, Deadline now) {
  Node& joined = nodes_[static_cast<std::size_t>(node)];
  // It finds that itself, and ends.
  if (facts.ranks != options_.ranks_per_node || facts.restarts != options_.restarts) return;
  if (facts.least != options_.least || facts.least_nodes != options_.least_nodes ||
      facts.spares != options_.spares) {
    return;
  }
  const auto refuse = [&](std::string why) {
    JobMessage refusal{.kind = JobMessage::Kind::kRefused, .node = node};
    refusal.text = std::move(why);
    prepare(std::move(refusal));
  };
  if (facts.generation >= 0 && facts.job != job_) {
    return refuse(fmt::format(
        "node 0 runs another job than the one that the ranks of node {} have kept states of: start "
        "the same command again there, to take part in it",
        node));
  }
  if (!recovers_ && joined.is_left_out) {
    if (finished_.empty()) return rest(node);
    return refuse(fmt::format("the job is ending: node {} comes too late to take part", node));
  }
  if (!recovers_) {  // its ranks had ended well
    JobMessage message;
    message.text = fmt::format("node {} was started again", node);
    loss_ = Loss{.message = std::move(message), .decide_by = now};
  }
  const bool begins_anew = joined.is_left_out;
  joined = {.is_here = true,
            .is_ready = true,
            .kept = facts.kept,
            .ranks = begins_anew ? options_.ranks_per_node : joined.ranks,
            .target = begins_anew ? options_.ranks_per_node : joined.target};
  if (facts.generation < 0) free_starts_ += options_.spares;
  prepare_notice(fmt::format("node {} is back", node));
}

void Coordinator::prepare(JobMessage message) { next_.push_back({.tell = std::move(message)}); }

void Coordinator::prepare_notice(std::string text) {
  JobMessage notice{.kind = JobMessage::Kind::kNotice};
  notice.text = std::move(text);
  prepare(std::move(notice));
}

bool Coordinator::is_waiting(int rank) const {
  return regrouped_.contains(rank) ||
         std::ranges::any_of(waiting_, [&](const Waiting& w) { return w.rank == rank; });
}

// Ranks may lose each other though none has ended: one that hangs, a broken connection. Those that
// wait have said so; the others have the time to notice.
void Coordinator::consider_waiting(Deadline now) {
  if (waiting_.empty()) return;
  std::set<int> hung;  // that others have waited for in vain, and that wait for nobody themselves
  for (const Waiting& one : waiting_) {
    for (const int rank : one.hung) {
      if (!is_waiting(rank) && !finished_.contains(rank)) hung.insert(rank);
    }
  }
  std::size_t busy = 0;
  for (int rank = 0; rank < size_; ++rank) {
    busy += !is_waiting(rank) && !finished_.contains(rank) ? 1 : 0;
  }
  const bool is_known = busy == hung.size();
  if (!is_known && now < lost_by_) return;
  JobMessage message;
  message.text =
      fmt::format("rank {} has lost others: {}", waiting_.front().rank, waiting_.front().why);
  if (is_known) message.ranks.assign(hung.begin(), hung.end());
  loss_ = Loss{.message = std::move(message), .decide_by = now, .notice_by = lost_by_};
}

std::string Coordinator::most_restarts() const {
  return options_.has_links ? fmt::format("{} in an hour of progress", budget_.most())
                            : fmt::format("{}", budget_.most());
}

std::string Coordinator::restarts_left() const {
  return fmt::format("{} restart{} left (--max-restarts: {})", budget_.left(),
                     budget_.left() == 1 ? " is" : "s are", most_restarts());
}

Coordinator::Action Coordinator::end_generation(Deadline now) {
  const Loss loss = *std::exchange(loss_, std::nullopt);
  const std::int64_t furthest = budget_.furthest();
  const std::string done = furthest > 0 ? fmt::format(" after step {}", furthest) : "";
  Action action;
  if (!loss.is_said) action.say.push_back(loss.message.text);
  const Action::Failure failure{loss.message.text, loss.message.exit_code};
  // What ends a rank by itself before the job's first step is in its settings, data or machine.
  if (options_.has_links && loss.message.ended_itself && furthest == 0) {
    action.end = failure;
    return action;
  }
  // An elastic job takes one when it is known how many ranks are left.
  if (!is_elastic() && !budget_.take()) {
    action.say.push_back(
        fmt::format("no restart is left{} (--max-restarts: {})", done, most_restarts()));
    action.end = failure;
    return action;
  }
  recovers_ = true;
  regroups_ = false;
  failure_ = failure;
  nanoseconds time = time_to_notice();
  if (loss.notice_by != kNoDeadline) time = std::max(loss.notice_by - now, nanoseconds(0));
  if (loss.message.leave) time += kMachineTimeout;
  JobMessage message = loss.message;
  message.kind = JobMessage::Kind::kRecover;
  message.generation = generation_;
  message.time = std::chrono::ceil<milliseconds>(time);
  // Ranks that have not met yet notice no loss, and may have states of the generation before.
  message.leave = message.leave || (generation_ > 0 && !last_step_);
  if (!is_elastic()) {
    message.more = fmt::format("the job continues{}: {}", done.empty() ? "" : done + " was done",
                               restarts_left());
  } else if (furthest > 0) {
    message.more = fmt::format("step {} was done", furthest);
  }
  for (Node& node : nodes_) {
    if (node.is_here) node.due = now + time + options_.grace + options_.rejoin_timeout;
  }
  action.tell = std::move(message);
  return action;
}

std::optional<Coordinator::Action> Coordinator::advance(Deadline now, bool asked_to_stop) {
  if (recovers_ && next_.empty()) leave_out_absent(now, asked_to_stop);
  if (!next_.empty()) {
    Action action = std::move(next_.front());
    next_.pop_front();
    return action;
  }
  if (recovers_) return recover(now, asked_to_stop);
  if (!loss_) consider_waiting(now);
  if (!loss_) return adapt(now, asked_to_stop);
  if (now < loss_->decide_by) return std::nullopt;
  return end_generation(now);
}

std::optional<Coordinator::Action> Coordinator::recover(Deadline now, bool asked_to_stop) {
  if (!std::ranges::all_of(nodes_, [](const Node& n) { return n.is_ready || n.is_left_out; })) {
    return await_nodes(now, asked_to_stop);
  }
  const bool any_kept = std::ranges::any_of(nodes_, [](const Node& n) { return !n.kept.empty(); });
  const auto begin_next = [&] {
    return is_elastic() && has_begun_ ? begin_adapted(any_kept, asked_to_stop) : begin(any_kept);
  };
  if (!asked_to_stop) return begin_next();
  if (any_kept) {  // what ranks have kept is saved by all of them, in one more generation
    Action action = begin_next();
    action.say.emplace_back("the job stops when its states are saved, which takes all ranks");
    return action;
  }
  Action action{.stop = true};
  if (options_.has_links && has_begun_) {
    action.say.emplace_back(
        "no rank has kept its states, so the steps since the newest checkpoint are not saved");
  }
  return action;
}

// Some node is missing, or its ranks are busy.
std::optional<Coordinator::Action> Coordinator::await_nodes(Deadline now, bool asked_to_stop) {
  std::vector<int> absent;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.is_left_out) continue;
    if (!node.is_here) absent.push_back(static_cast<int>(i));
    // The job may continue without an absent one when the ranks of the others are known.
    if (node.is_ready || now < node.due || may_be_left_out(static_cast<int>(i))) continue;
    return Action{.end = Action::Failure{fmt::format(
                      "node {} {} (--rejoin-timeout: {}). Start the same command on all nodes "
                      "again: it continues from the newest checkpoint",
                      i, node.is_here ? "does not answer" : "has not come back",
                      duration(options_.rejoin_timeout))}};
  }
  if (absent.empty()) return std::nullopt;
  const bool all_others =
      std::ranges::all_of(nodes_, [](const Node& node) { return node.is_ready || !node.is_here; });
  if (!all_others) return std::nullopt;
  const std::string names =
      fmt::format("node{} {}", absent.size() == 1 ? "" : "s", fmt::join(absent, ", "));
  if (asked_to_stop) {
    return Action{.say = {fmt::format("{} {} missing, so the steps since the newest checkpoint "
                                      "are not saved",
                                      names, absent.size() == 1 ? "is" : "are")},
                  .stop = true};
  }
  if (std::exchange(told_absence_, true)) return std::nullopt;
  JobMessage notice{.kind = JobMessage::Kind::kNotice};
  notice.text = fmt::format(
      "the other nodes wait {} for {}: start the same command there again (--rejoin-timeout)",
      duration(options_.rejoin_timeout), names);
  return Action{.tell = std::move(notice)};
}

Coordinator::Action Coordinator::begin(bool any_kept) {
  JobMessage message{.kind = JobMessage::Kind::kBegin, .generation = ++generation_};
  message.any_kept = any_kept;
  message.count = size_ = total(&Node::ranks);
  message.counts = counts();
  message.job = job_;
  for (Node& node : nodes_) {
    node.is_ready = false;
    node.kept.clear();
    node.due = kNoDeadline;
    node.failed = 0;
  }
  recovers_ = false;
  has_begun_ = true;
  told_absence_ = false;
  waiting_.clear();
  finished_.clear();
  regrouped_.clear();
  regroups_ = false;
  regroup_requests_ = 0;
  lost_a_node_ = false;
  loss_.reset();
  lost_by_ = kNoDeadline;
  last_step_.reset();
  return Action{.tell = std::move(message)};
}

Deadline Coordinator::due() const {
  if (!next_.empty()) return Deadline::min();
  if (!recovers_) return loss_ ? loss_->decide_by : lost_by_;
  Deadline due = kNoDeadline;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.is_ready || node.is_left_out) continue;
    if (may_be_left_out(static_cast<int>(i)) && any_is_busy()) continue;
    due = std::min(due, node.due);
  }
  return due;
}

}  // namespace lockstep
