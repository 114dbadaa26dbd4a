#include "lockstep/launch/verdict.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/exit_status.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kTimeout{2};
constexpr std::string_view kDone = "done";
constexpr std::string_view kStopped = "stopped";

std::string encode(const Verdict::Culprit& culprit) {
  return fmt::format("failed {} {}", culprit.exit_code, culprit.text);
}

Verdict::Culprit decode(const std::string& text) {
  int code = 1;
  int text_at = 0;
  std::sscanf(text.c_str(), "failed %d %n", &code, &text_at);
  return {text.substr(static_cast<std::size_t>(text_at)), code};
}

std::string encode(const Verdict::StopRequest& request) {
  return fmt::format("asked {} {}", request.signal, request.text);
}

std::optional<Verdict::StopRequest> decode_request(const std::string& text) {
  Verdict::StopRequest request;
  int text_at = 0;
  if (std::sscanf(text.c_str(), "asked %d %n", &request.signal, &text_at) != 1) return {};
  request.text = text.substr(static_cast<std::size_t>(text_at));
  return request;
}

}  // namespace

void Verdict::report_request(const StopRequest& request) {
  if (link_ != nullptr) return tell(encode(request));
  if (!stop_request_) stop_request_ = request;
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
  settled_by_ = deadline_in(kTimeout);
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
    if (news.left) {
      hear_of_leaving(news.node);
    } else if (news.text == kDone || news.text == kStopped) {
      ended_nodes_.insert(news.node);
      stopped_ |= news.text == kStopped;
    } else if (auto request = decode_request(news.text)) {
      if (!stop_request_) stop_request_ = std::move(request);
    } else {
      failed_nodes_.insert(news.node);
      convict(decode(news.text));
    }
    settle_if_stopped();  // at once: all nodes receive events in one order and judge in it
  }
}

void Verdict::hear_of_leaving(int node) {
  // A server that is gone passes nothing on: neither what we suspect nor how our ranks ended.
  const bool is_missed = node == 0 && !all_nodes_ended();
  const bool has_reported = ended_nodes_.contains(node) || failed_nodes_.contains(node);
  if (has_reported && !is_missed) return;
  if (suspect_ && node == 0) convict(*suspect_);
  convict({fmt::format("lost node {}: its launcher died, or it cannot be reached", node)});
}

void Verdict::settle_if_stopped() {
  if (!stopped_ || !all_nodes_ended()) return;
  const std::string text = stop_request_ ? stop_request_->text : "the ranks have stopped";
  convict({text, kToBeContinued, true});
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
    link_->tell(text, deadline_in(kTimeout));
  } catch (const Error&) {
    // The server has gone; the news will say so.
  }
}

}  // namespace lockstep
