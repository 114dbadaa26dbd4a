// What a supervisor hears from the launchers of all nodes, and how it joins them again: see
// Supervisor and launch/launcher.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/units.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep {

void Supervisor::hear_nodes() {
  for (const NodeLink::News& news : job_link_.take()) {
    if (news.left) {
      hear_of_leaving(news.node);
    } else if (news.joined) {
      hear_of_joining(news.node, news.text);
    } else if (!verdict_.hear(news.node, news.text)) {
      if (const auto message = decode_message(news.text)) hear_message(news.node, *message);
    }
  }
}

void Supervisor::hear_message(int node, const JobMessage& message) {
  if (verdict_.is_failure()) return;
  switch (message.kind) {
    case JobMessage::Kind::kRecover:
      return recover(message);
    case JobMessage::Kind::kBegin:
      return start_generation(message);
    case JobMessage::Kind::kNotice:
      return say(message.text);
    case JobMessage::Kind::kRegroup:
      say(message.text);
      for (const auto& rank : ranks_) rank->link()->send_regroup(setup_.generation, message.count);
      return;
    case JobMessage::Kind::kEvict:
      return evict(message);
    case JobMessage::Kind::kStart:
      if (message.generation == setup_.generation) start_spares(message);
      return;
    case JobMessage::Kind::kRest:
      say(message.text);
      if (message.node == options_.node_rank) rest(message);
      return;
    case JobMessage::Kind::kRefused:
      if (message.node != options_.node_rank) return;
      leave_job();
      fail_here(message.text, 1);
      return verdict_.settle();
    default:
      if (coordinator_) coordinator_->hear(node, message, std::chrono::steady_clock::now());
  }
}

void Supervisor::hear_of_joining(int node, const std::string& text) {
  if (!coordinator_ || !options_.recovers()) return;
  try {
    coordinator_->join(node, decode_facts(node, text), std::chrono::steady_clock::now());
  } catch (const Error& error) {
    say(error.what());  // it does not take part
  }
}

// Until the next generation begins. What this node's ranks may have kept is out of date.
void Supervisor::rest(const JobMessage& message) {
  take_place(message);
  setup_.ranks = 0;
  fit_ranks();
  is_recovering_ = false;
  kill_by_ = kNoDeadline;
}

void Supervisor::hear_of_leaving(int node) {
  const bool is_missed = verdict_.misses(node);
  if (verdict_.is_failure() || !options_.recovers()) {
    if (is_missed) verdict_.end_without(node);
    return;
  }
  if (!is_missed && !(coordinator_ && coordinator_->counts_on(node))) return;
  if (coordinator_) return coordinator_->leave(node, std::chrono::steady_clock::now());
  if (node != 0) return;  // node 0 says what follows
  // Its ranks have died with it, or cannot be reached either: this node's notice that.
  constexpr std::chrono::seconds kMachineTimeout{40};
  say("lost node 0: its launcher died, or it cannot be reached");
  is_recovering_ = is_decided_ = told_ready_ = ranks_leave_ = true;
  kill_by_ = deadline_in(options_.grace + kMachineTimeout);
  for (const auto& rank : ranks_) {
    if (rank->link() != nullptr) rank->link()->send_leave();
  }
  if (!options_.restarts.has_links) {
    for (const auto& rank : ranks_) rank->signal_group(SIGTERM);
  }
}

void Supervisor::coordinate() {
  while (coordinator_ && !verdict_.is_failure()) {
    const bool asked_to_stop = interrupted_by_ != 0 || verdict_.stop_request();
    auto action = coordinator_->advance(std::chrono::steady_clock::now(), asked_to_stop);
    if (!action) return;
    for (const std::string& text : action->say) say(text);
    if (action->end_after) end_after_ = action->end_after;
    if (action->tell) {
      if (action->tell->kind == JobMessage::Kind::kBegin) {
        action->tell->master_port = free_master_port(options_, setup_);
      }
      job_link_.tell(encode(*action->tell));
    }
    if (action->end) {
      is_recovering_ = false;
      if (!all_ranks_ended()) {
        say(fmt::format("the other ranks have {:g} s to end on their own",
                        std::chrono::duration<double>(options_.grace).count()));
      }
      return fail_here(action->end->text, action->end->exit_code);
    }
    if (action->stop) {
      is_recovering_ = false;
      return report_interruption();
    }
  }
}

void Supervisor::advance_reconnection() {
  if (interrupted_by_ != 0) {
    say("node 0 is missing, so the steps since the newest checkpoint are not saved");
    is_recovering_ = false;
    return report_interruption();
  }
  if (!reconnection_) {
    say(fmt::format(
        "waiting {} for node 0: start the same command there again (--rejoin-timeout)",
        format_duration(std::chrono::duration<double>(options_.rejoin_timeout).count())));
    const NodeFacts facts = facts_of_node(options_, setup_, setup_.generation, kept_ranks());
    reconnection_.emplace(setup_.rendezvous, setup_.token, options_.node_rank, options_.nodes,
                          encode(facts), deadline_in(options_.rejoin_timeout));
  }
  auto result = reconnection_->take();
  if (!result) return;
  reconnection_.reset();
  std::string why = result->error ? result->error->what() : "";
  if (result->link) {
    try {
      setup_.nodes = compare_nodes(options_, *result->link);
      job_link_.replace(std::move(result->link));
      say("joined node 0 again");
      return hear_nodes();  // what has come with the answer is not to be polled for
    } catch (const Error& error) {
      why = error.what();
    }
  }
  is_recovering_ = false;
  fail_here(
      fmt::format("node 0 has not come back (--rejoin-timeout: {}): {}. Start the same "
                  "command on all nodes again: it continues from the newest checkpoint",
                  format_duration(std::chrono::duration<double>(options_.rejoin_timeout).count()),
                  why),
      1);
  verdict_.settle();
}

void Supervisor::leave_job() {
  job_link_.leave();
  coordinator_.reset();
}

}  // namespace lockstep
