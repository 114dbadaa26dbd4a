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

std::string counted_ranks(int ranks) {
  return ranks == 1 ? "1 rank" : fmt::format("{} ranks", ranks);
}

}  // namespace

Coordinator::Coordinator(const Options& options, std::span<const NodeFacts> facts)
    : options_(options),
      budget_(options.restarts),
      job_(facts.front().job),
      size_(options.nodes * options.ranks_per_node),
      target_(size_),
      free_starts_(options.spares) {
  // Launchers of one that has died wait for this one.
  std::string former;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    nodes_.push_back({.kept = facts[i].kept});
    if (i == 0 || facts[i].generation < 0) continue;
    generation_ = std::max(generation_, facts[i].generation);
    if (former.empty()) former = facts[i].job;
    if (facts[i].job == former) continue;
    next_ = Action{.end = Action::Failure{fmt::format(
                       "the launcher of node {} waits for another job than that of another node: "
                       "end the launchers of all nodes and start them again",
                       i)}};
  }
  if (!former.empty()) {
    prepare_notice("node 0 is back; its launcher counts restarts anew");
  }
}

nanoseconds Coordinator::time_to_notice() const {
  constexpr int kSteps = 3;
  return options_.grace + kSteps * longest_step_;
}

std::string Coordinator::ranks_of(int node) const {
  const int first = node * options_.ranks_per_node;
  return options_.ranks_per_node == 1
             ? fmt::format("rank {}", first)
             : fmt::format("ranks {} to {}", first, first + options_.ranks_per_node - 1);
}

void Coordinator::reach(std::int64_t step, Deadline now) {
  budget_.reach(step, now);
  if (last_step_) longest_step_ = std::max(longest_step_, nanoseconds(now - *last_step_));
  last_step_ = now;
}

int Coordinator::count_replacements() const {
  return std::max(target_ - size_, 0) + options_.spares - warm_ - starting_;
}

void Coordinator::hear(int node, const JobMessage& message, Deadline now) {
  if (message.kind == JobMessage::Kind::kPool) {
    warm_ = message.warm;
    starting_ = message.starting;
    return;
  }
  if (message.kind == JobMessage::Kind::kResize) {
    target_ = message.count;
    free_starts_ = std::max(free_starts_, count_replacements());
    return;
  }
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
      failed_ = message.count;
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
  if (!all_train || next_ || (warm_ == 0 && budget_.left() < 2)) return;
  JobMessage message = slow;
  message.kind = JobMessage::Kind::kEvict;
  next_ = Action{.tell = std::move(message)};
}

// Until somebody asks again: each attempt stops all ranks, and the disk is as it was.
void Coordinator::stay(const JobMessage& stays) {
  if (!regroups_ || stays.count != regroup_requests_) return;
  regroups_ = false;
  regrouped_.clear();
  const int asked = std::exchange(target_, size_);
  prepare_notice(fmt::format(
      "the job keeps its {}: their states are in no checkpoint, and would be lost. When one can be "
      "saved, lockstep resize RUN {} asks for {} again",
      counted_ranks(size_), asked, counted_ranks(asked)));
}

void Coordinator::leave(int node, Deadline now) {
  nodes_[static_cast<std::size_t>(node)] = {
      .is_here = false, .is_ready = false, .due = now + options_.rejoin_timeout};
  told_absence_ = false;
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
  if (facts.generation >= 0 && facts.job != job_) {
    JobMessage refusal{.kind = JobMessage::Kind::kRefused, .node = node};
    refusal.text = fmt::format(
        "node 0 runs another job than the one that the ranks of node {} have kept states of: start "
        "the same command again there, to take part in it",
        node);
    next_ = Action{.tell = std::move(refusal)};
    return;
  }
  if (!recovers_) {  // its ranks had ended well
    JobMessage message;
    message.text = fmt::format("node {} was started again", node);
    loss_ = Loss{.message = std::move(message), .decide_by = now};
  }
  joined = {.is_here = true, .is_ready = true, .kept = facts.kept};
  prepare_notice(fmt::format("node {} is back", node));
}

void Coordinator::prepare_notice(std::string text) {
  if (next_) return;
  JobMessage notice{.kind = JobMessage::Kind::kNotice};
  notice.text = std::move(text);
  next_ = Action{.tell = std::move(notice)};
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
  if (next_) return std::exchange(next_, std::nullopt);
  if (recovers_) return recover(now, asked_to_stop);
  if (!loss_) consider_waiting(now);
  if (!loss_) return adapt(now, asked_to_stop);
  if (now < loss_->decide_by) return std::nullopt;
  return end_generation(now);
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
  int start = 0;
  while (start < count_replacements() && (free_starts_ > 0 || budget_.take())) {
    free_starts_ = std::max(free_starts_ - 1, 0);
    ++start;
  }
  if (start > 0) {
    starting_ += start;
    Action action{.start = start};
    action.say.push_back(fmt::format("starting {} to {}",
                                     start == 1 ? "a process" : fmt::format("{} processes", start),
                                     size_ < target_ ? "take part" : "stand by"));
    return action;
  }
  const bool grows = size_ < target_ && warm_ > 0 && starting_ == 0;
  if (!grows && size_ <= target_) return std::nullopt;
  regroups_ = true;
  JobMessage message{
      .kind = JobMessage::Kind::kRegroup, .generation = generation_, .count = ++regroup_requests_};
  message.text = fmt::format("stopping {} after a step, to continue with {}", counted_ranks(size_),
                             std::min(size_ + warm_, target_));
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

std::optional<Coordinator::Action> Coordinator::recover(Deadline now, bool asked_to_stop) {
  if (!std::ranges::all_of(nodes_, [](const Node& n) { return n.is_ready; })) {
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
    if (!node.is_here) absent.push_back(static_cast<int>(i));
    if (node.is_ready || now < node.due) continue;
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
  prepare_notice(fmt::format(
      "the other nodes wait {} for {}: start the same command there again (--rejoin-timeout)",
      duration(options_.rejoin_timeout), names));
  return std::exchange(next_, std::nullopt);
}

// With as many ranks as there are now. Where one that has lost others is to blame for that, nobody
// knows: then it takes a restart, too.
Coordinator::Action Coordinator::begin_adapted(bool any_kept, bool asked_to_stop) {
  const int before = size_;
  const int able = std::max(size_ - failed_, 0);
  int size = std::min(able + warm_, target_);
  std::vector<std::string> say;
  if (failed_ > 0 && !failure_) {
    failure_ = Action::Failure{"ranks ended while the job was to continue with another number"};
  }
  if (failure_ && !asked_to_stop && (failed_ == 0 || size < target_)) {
    const bool restarts = budget_.take();
    if (restarts) size = target_;
    say.push_back(restarts
                      ? restarts_left()
                      : fmt::format("no restart is left (--max-restarts: {})", most_restarts()));
    if (!restarts && failed_ == 0) return {.say = std::move(say), .end = failure_};
  }
  std::optional<Action::Failure> end;
  if (size < options_.least && !asked_to_stop) {
    say.push_back(fmt::format("{} left, and the job needs {} (--ranks {}:{}): it {}",
                              size == 1 ? "1 rank is" : fmt::format("{} ranks are", size),
                              options_.least, options_.least, options_.ranks_per_node,
                              any_kept ? "saves and ends" : "ends"));
    end = failure_;
    if (!any_kept) return {.say = std::move(say), .end = end};
  }
  // These take part. The pool reports what is left when they do, which is too late for adapt().
  warm_ -= std::clamp(size - able, 0, warm_);
  size_ = size;
  if (size != before) {
    say.push_back(
        fmt::format("the job continues with {} instead of {}", counted_ranks(size), before));
  }
  Action action = begin(any_kept);
  action.say = std::move(say);
  action.end_after = std::move(end);
  return action;
}

Coordinator::Action Coordinator::begin(bool any_kept) {
  JobMessage message{.kind = JobMessage::Kind::kBegin, .generation = ++generation_};
  message.any_kept = any_kept;
  message.count = size_;
  message.job = job_;
  for (Node& node : nodes_) node = {.is_here = true, .is_ready = false};
  recovers_ = false;
  has_begun_ = true;
  told_absence_ = false;
  waiting_.clear();
  finished_.clear();
  regrouped_.clear();
  regroups_ = false;
  regroup_requests_ = 0;
  failed_ = 0;
  loss_.reset();
  lost_by_ = kNoDeadline;
  last_step_.reset();
  return Action{.tell = std::move(message)};
}

Deadline Coordinator::due() const {
  if (next_) return Deadline::min();
  if (!recovers_) return loss_ ? loss_->decide_by : lost_by_;
  Deadline due = kNoDeadline;
  for (const Node& node : nodes_) {
    if (!node.is_ready) due = std::min(due, node.due);
  }
  return due;
}

}  // namespace lockstep
