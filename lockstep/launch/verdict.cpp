#include "lockstep/launch/verdict.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/exit_status.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr std::string_view kDone = "done";
constexpr std::string_view kStopped = "stopped";
constexpr std::string_view kAsked = "asked ";

std::string encode(const Verdict::Culprit& culprit) {
  return fmt::format("failed {} {}", culprit.exit_code, culprit.text);
}

Verdict::Culprit decode(const std::string& text) {
  int code = 1;
  int text_at = 0;
  std::sscanf(text.c_str(), "failed %d %n", &code, &text_at);
  return {text.substr(static_cast<std::size_t>(text_at)), code};
}

}  // namespace

void Verdict::report_asked_to_stop(std::string text) {
  if (link_ != nullptr) return tell(std::string(kAsked) + text);
  if (!asked_to_stop_) asked_to_stop_ = std::move(text);
}

void Verdict::report_success() {
  if (link_ == nullptr || std::exchange(told_end_, true)) return;
  tell(kDone);
}

void Verdict::report_stopped() {
  if (std::exchange(told_end_, true)) return;
  if (link_ != nullptr) return tell(kStopped);
  stopped_ = true;
  settle_if_stopped();
}

void Verdict::report(Culprit suspect) {
  if (is_failure()) return;
  suspect_ = std::move(suspect);
  if (link_ == nullptr) return convict(*suspect_);
  settled_by_ = deadline_in(kPatience);
  tell(encode(*suspect_));
}

bool Verdict::culprit_is_elsewhere() const {
  return culprit_ && (!suspect_ || suspect_->text != culprit_->text);
}

bool Verdict::all_nodes_ended() const {
  return link_ == nullptr || ended_nodes_.size() == static_cast<std::size_t>(nodes_);
}

void Verdict::hear() {
  for (const NodeLink::News& news : link_->news()) {
    const std::string_view text = news.text;
    if (news.left) {
      if (ended_nodes_.contains(news.node) || failed_nodes_.contains(news.node)) continue;
      // A server that is gone will not settle what we suspect.
      if (suspect_ && news.node == 0) convict(*suspect_);
      convict({fmt::format("node {} has gone: its launcher died, or its machine cannot be reached",
                           news.node)});
    } else if (text.starts_with(kAsked)) {
      if (!asked_to_stop_) asked_to_stop_ = text.substr(kAsked.size());
    } else if (text == kDone || text == kStopped) {
      ended_nodes_.insert(news.node);
      stopped_ |= text == kStopped;
    } else {
      failed_nodes_.insert(news.node);
      convict(decode(news.text));
    }
  }
  settle_if_stopped();
}

void Verdict::settle_if_stopped() {
  if (!stopped_ || !all_nodes_ended()) return;
  convict({asked_to_stop_.value_or("the job has stopped"), kToBeContinued});
}

void Verdict::settle_if_due() {
  if (suspect_ && has_passed(settled_by_)) convict(*suspect_);
}

void Verdict::convict(const Culprit& culprit) {
  if (culprit_) return;
  culprit_ = culprit;
  settled_by_ = kNoDeadline;
}

void Verdict::tell(std::string_view text) {
  try {
    link_->tell(text, deadline_in(kPatience));
  } catch (const Error&) {
    // The server has gone; the news will say so.
  }
}

}  // namespace lockstep
