// How a supervisor recovers from the loss of ranks: see Supervisor and launch/launcher.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <utility>

#include "lockstep/base/system/stack_trace.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

void Supervisor::hear(RankProcess& rank) {
  if (rank.link() == nullptr) return;
  while (auto report = rank.link()->take()) {
    switch (report->kind) {
      case RankReport::Kind::kStep:
        if (coordinator_) coordinator_->reach(report->step, std::chrono::steady_clock::now());
        break;
      case RankReport::Kind::kFinal:
        rank.set_final();
        break;
      case RankReport::Kind::kReady:
        if (verdict_.is_failure()) rank.link()->send_end();  // it would wait for nothing
        rank.set_lost("");
        if (rank.rank() == RankProcess::kSpare) {
          say(fmt::format("{} stands by", rank.name()));
          report_pool();
        } else {
          job_link_.tell(encode(JobMessage{.kind = JobMessage::Kind::kWaits,
                                           .generation = setup_.generation,
                                           .rank = rank.rank(),
                                           .regrouped = true}));
        }
        break;
      case RankReport::Kind::kStays:
        job_link_.tell(encode(JobMessage{.kind = JobMessage::Kind::kStays,
                                         .generation = setup_.generation,
                                         .count = report->request}));
        break;
      case RankReport::Kind::kSlow: {
        JobMessage message{.kind = JobMessage::Kind::kSlow,
                           .generation = setup_.generation,
                           .ranks = std::move(report->ranks)};
        message.text = std::move(report->text);
        job_link_.tell(encode(message));
        break;
      }
      case RankReport::Kind::kLost: {
        if (verdict_.is_failure()) rank.link()->send_end();  // it would wait for nothing
        JobMessage message{.kind = JobMessage::Kind::kWaits,
                           .generation = setup_.generation,
                           .rank = rank.rank(),
                           .ranks = std::move(report->ranks)};
        message.text = report->text;
        job_link_.tell(encode(message));
        rank.set_lost(std::move(report->text));
        break;
      }
    }
  }
}

bool Supervisor::is_final(const RankProcess& rank) const {
  const int code = rank.status()->code();
  return rank.is_final() || code == kToBeContinued ||
         std::ranges::find(options_.restarts.final_codes, code) !=
             options_.restarts.final_codes.end();
}

bool Supervisor::may_recover_from(RankProcess& rank) {
  if (!options_.recovers() || is_final(rank)) return false;
  const bool blames = !rank.blamed().empty();
  JobMessage message{.kind = JobMessage::Kind::kLost,
                     .generation = setup_.generation,
                     .exit_code = rank.status()->code(),
                     .ended_itself = rank.status()->signal() == 0 && !blames,
                     .blames = blames};
  message.text = culprit_text(rank);
  job_link_.tell(encode(message));
  report_end(rank);
  if (!blames) rank.set_failed();
  is_recovering_ = true;
  is_decided_ = told_ready_ = false;
  return true;
}

// The generation ends, on all nodes.
void Supervisor::recover(const JobMessage& message) {
  if (message.generation != setup_.generation || (is_recovering_ && is_decided_)) return;
  if (!coordinator_ && message.node != options_.node_rank) say(message.text);
  if (!message.more.empty()) say(message.more);
  is_recovering_ = is_decided_ = true;
  told_ready_ = false;
  ranks_leave_ = message.leave;
  kill_by_ = deadline_in(message.time);
  end_hung(message.ranks);
  for (const auto& rank : ranks_) {
    if (message.leave && rank->link() != nullptr) rank->link()->send_leave();
  }
  if (!options_.restarts.has_links) {
    // Others' programs may not notice that a rank is missing.
    for (const auto& rank : ranks_) rank->signal_group(SIGTERM);
  }
}

void Supervisor::end_during_recovery(RankProcess& rank) {
  // One that has left others and keeps nothing ends, and names none of them.
  const bool has_left = ranks_leave_ && rank.status()->signal() == 0 && !is_final(rank);
  const bool by_others = !rank.blamed().empty() || !options_.restarts.has_links || has_left;
  if (by_others || rank.status()->code() == kToBeContinued) {
    rank.drop_error();
  } else if (is_final(rank)) {
    is_recovering_ = false;
    report_failure(rank);
  } else {
    rank.set_failed();
    if (!kills_stragglers_) report_end(rank);
  }
}

std::vector<int> Supervisor::kept_ranks() const {
  std::vector<int> kept;
  for (const auto& rank : ranks_) {
    if (rank != nullptr && !rank->has_ended()) kept.push_back(rank->rank());
  }
  return kept;
}

void Supervisor::advance_recovery() {
  if (!is_recovering_) return;
  if (verdict_.is_failure()) {
    is_recovering_ = false;
    return;
  }
  if (!unjudged_.empty()) return;
  if (std::ranges::any_of(ranks_, [](const auto& rank) { return rank->is_busy(); })) {
    return end_stragglers();
  }
  if (job_link_.is_cut_off()) return advance_reconnection();
  if (!is_decided_ || told_ready_) return;
  told_ready_ = true;
  const auto failed =
      std::ranges::count_if(ranks_, [](const auto& rank) { return rank->has_failed(); });
  job_link_.tell(encode(JobMessage{.kind = JobMessage::Kind::kReady,
                                   .generation = setup_.generation,
                                   .ranks = kept_ranks(),
                                   .count = static_cast<int>(failed)}));
}

// Those that others have waited for in vain. One that runs prints its stack before it is killed.
void Supervisor::end_hung(const std::vector<int>& hung) {
  constexpr std::chrono::seconds kStackTime{1};
  for (const auto& rank : ranks_) {
    const bool is_named = std::ranges::find(hung, rank->rank()) != hung.end();
    if (!is_named || !rank->is_busy()) continue;
    const bool stopped = rank->is_stopped();
    say(fmt::format("{} hangs: {}", rank->name(on_this_node()),
                    stopped ? "it was stopped by a signal"
                            : "it runs, but others wait for it; its stack follows"));
    if (!stopped) rank->signal_process(stack_signal());
    kill_by_ = std::min(kill_by_, deadline_in(stopped ? std::chrono::seconds(0) : kStackTime));
  }
}

void Supervisor::evict(const JobMessage& message) {
  if (message.generation != setup_.generation || is_recovering_) return;
  if (interrupted_by_ != 0 || verdict_.stop_request()) return;  // all ranks are about to save
  for (const auto& rank : ranks_) {
    if (std::ranges::find(message.ranks, rank->rank()) == message.ranks.end()) continue;
    if (!rank->is_busy()) continue;
    say(fmt::format("{} is evicted: {}", rank->name(on_this_node()), message.text));
    rank->signal_group(SIGKILL);
  }
}

void Supervisor::end_stragglers() {
  if (!has_passed(kill_by_)) return;
  kill_by_ = kNoDeadline;
  kills_stragglers_ = true;
  for (const auto& rank : ranks_) {
    if (!rank->is_busy()) continue;
    say(fmt::format("{} has not come back and is killed", rank->name(on_this_node())));
    rank->signal_group(SIGKILL);
  }
}

void Supervisor::take_place(const JobMessage& message) {
  setup_.generation = message.generation;
  setup_.job = message.job;
  setup_.size = message.count;
  setup_.first_rank = 0;
  std::set<int> left_out;
  for (int node = 0; node < options_.nodes; ++node) {
    const int ranks = message.counts[static_cast<std::size_t>(node)];
    if (ranks <= 0) left_out.insert(node);  // its launcher has no ranks to report
    if (node < options_.node_rank) setup_.first_rank += std::max(ranks, 0);
    if (node == options_.node_rank) setup_.ranks = std::max(ranks, 0);
  }
  verdict_.begin_generation(message.generation, std::move(left_out));
}

void Supervisor::start_generation(const JobMessage& message) {
  const bool is_first = ranks_.empty();
  take_place(message);
  // That of a generation before may still be in use; a process that lives cannot take another.
  if (!message.any_kept) setup_.master.port = static_cast<std::uint16_t>(message.master_port);
  fit_ranks();
  const std::vector<int> kept = kept_ranks();
  std::vector<int> started;
  for (int i = 0; i < setup_.ranks; ++i) {
    const int rank = setup_.first_rank + i;
    if (std::ranges::find(kept, rank) == kept.end()) started.push_back(rank);
  }
  if (kept.empty() && spares_.empty()) {
    kill_descendants(deadline_in(std::chrono::seconds(5)));  // what the ranks have left running
  }
  if (setup_.ranks == 0) {
    say("this node has no ranks in the generation that begins");
  } else if (is_first) {
    if (message.generation > 0 && !started.empty()) {
      say(fmt::format("starting {}, in generation {} of the job", ranks_text(started),
                      message.generation));
    }
  } else if (kept.empty()) {
    say(fmt::format(
        "starting {} again{}",
        started.size() == 1 ? ranks_text(started) : fmt::format("all {} ranks", started.size()),
        options_.restarts.has_links && !message.any_kept ? ", from the newest checkpoint" : ""));
  } else {
    say(fmt::format("{}{}; {} kept {} and {}",
                    started.empty() ? "connecting the ranks" : "starting " + ranks_text(started),
                    " again", ranks_text(kept),
                    kept.size() == 1 ? "its process" : "their processes",
                    kept.size() == 1 ? "waits" : "wait"));
  }
  followers_.clear();
  repeaters_.clear();
  told_errors_.clear();
  ranks_.resize(static_cast<std::size_t>(setup_.ranks));
  for (int i = 0; i < setup_.ranks; ++i) {
    std::unique_ptr<RankProcess>& rank = ranks_[static_cast<std::size_t>(i)];
    const bool is_kept = rank != nullptr && !rank->has_ended();
    if (is_kept) {
      rank->set_lost(std::nullopt);
      rank->link()->send_join({.generation = setup_.generation,
                               .rank = rank->rank(),
                               .size = message.count,
                               .local_rank = i,
                               .local_size = setup_.ranks});
    } else {
      if (rank != nullptr) {
        rank->drain();
        rank->finish_lines();
        rank->tell_error();
      }
      rank = start_rank(i);
    }
    // Others have it.
    if (interrupted_by_ != 0 && !is_kept) rank->signal_group(interrupted_by_);
  }
  report_pool();
  if (end_after_) {
    interruption_ = end_after_->text;
    if (options_.nodes > 1) verdict_.report_request({SIGTERM, interruption_});
    interrupt(SIGTERM);
  }
  is_recovering_ = kills_stragglers_ = to_be_continued_ = ranks_leave_ = false;
  kill_by_ = kNoDeadline;
}

}  // namespace lockstep
