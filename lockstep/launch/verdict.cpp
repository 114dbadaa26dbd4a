#include "lockstep/launch/verdict.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "lockstep/launch/exit_status.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kTimeout{2};
constexpr std::string_view kDone = "done";
constexpr std::string_view kStopped = "stopped";
constexpr std::string_view kFailed = "failed";

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

void Verdict::begin_generation(int generation, std::set<int> left_out) {
  generation_ = generation;
  left_out_ = std::move(left_out);
  ended_nodes_.clear();
  told_end_ = stopped_ = false;
}

void Verdict::report_request(const StopRequest& request) {
  if (!link_.has_one_node()) return link_.tell(encode(request));
  if (!stop_request_) stop_request_ = request;
}

void Verdict::report_success() {
  if (link_.has_one_node() || std::exchange(told_end_, true)) return;
  link_.tell(fmt::format("{} {}", kDone, generation_));
}

void Verdict::report_stopped() {
  if (std::exchange(told_end_, true)) return;
  if (!link_.has_one_node()) return link_.tell(fmt::format("{} {}", kStopped, generation_));
  stopped_ = true;
  settle_if_stopped();
}

void Verdict::report(Culprit suspect) {
  if (is_failure()) return;
  suspect_ = std::move(suspect);
  if (link_.has_one_node()) return convict(*suspect_);
  settled_by_ = deadline_in(kTimeout);
  link_.tell(encode(*suspect_));
}

bool Verdict::culprit_is_elsewhere() const {
  return culprit_ && (!suspect_ || suspect_->text != culprit_->text);
}

bool Verdict::all_nodes_ended() const {
  if (link_.has_one_node()) return true;
  for (int node = 0; node < nodes_; ++node) {
    if (!left_out_.contains(node) && !ended_nodes_.contains(node)) return false;
  }
  return true;
}

bool Verdict::hear(int node, const std::string& text) {
  const std::string_view word = std::string_view(text).substr(0, text.find(' '));
  if (word == kDone || word == kStopped) {
    // Of an earlier generation: its ranks have been started again since.
    if (text.substr(word.size()) == fmt::format(" {}", generation_)) {
      ended_nodes_.insert(node);
      stopped_ |= word == kStopped;
    }
  } else if (auto request = decode_request(text)) {
    if (!stop_request_) stop_request_ = std::move(request);
  } else if (word == kFailed) {
    failed_nodes_.insert(node);
    convict(decode(text));
  } else {
    return false;
  }
  settle_if_stopped();  // at once: all nodes receive events in one order and judge in it
  return true;
}

bool Verdict::misses(int node) const {
  // A server that is gone passes nothing on: neither what we suspect nor how our ranks ended.
  if (node == 0 && !all_nodes_ended()) return true;
  if (left_out_.contains(node)) return false;
  return !ended_nodes_.contains(node) && !failed_nodes_.contains(node);
}

void Verdict::end_without(int node) {
  if (suspect_ && node == 0) convict(*suspect_);
  convict({fmt::format("lost node {}: its launcher died, or it cannot be reached", node)});
}

void Verdict::settle_if_stopped() {
  if (!stopped_ || !all_nodes_ended()) return;
  const std::string text = stop_request_ ? stop_request_->text : "the ranks have stopped";
  convict({text, kToBeContinued, true});
}

void Verdict::settle_if_due() {
  if (has_passed(settled_by_)) settle();
}

void Verdict::settle() {
  if (suspect_) convict(*suspect_);
}

void Verdict::convict(const Culprit& culprit) {
  if (culprit_) return;
  culprit_ = culprit;
  settled_by_ = kNoDeadline;
}

}  // namespace lockstep
