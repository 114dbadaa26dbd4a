#include "lockstep/launch/verdict.h"

#include <fmt/format.h>

#include <cstdio>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr const char* kDone = "done";

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

void Verdict::report_success() {
  if (link_ == nullptr || told_success_) return;
  told_success_ = true;
  tell(kDone);
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

bool Verdict::all_nodes_succeeded() const {
  return link_ == nullptr || successful_nodes_.size() == static_cast<std::size_t>(nodes_);
}

void Verdict::hear() {
  for (const NodeLink::News& news : link_->news()) {
    if (!news.left && news.text == kDone) {
      successful_nodes_.insert(news.node);
    } else if (!news.left) {
      failed_nodes_.insert(news.node);
      convict(decode(news.text));
    } else if (!successful_nodes_.contains(news.node) && !failed_nodes_.contains(news.node)) {
      // A server that is gone will not settle what we suspect.
      if (suspect_ && news.node == 0) convict(*suspect_);
      convict({fmt::format("node {} has gone: its launcher died, or its machine cannot be reached",
                           news.node)});
    }
  }
}

void Verdict::settle_if_due() {
  if (suspect_ && has_passed(settled_by_)) convict(*suspect_);
}

void Verdict::convict(const Culprit& culprit) {
  if (culprit_) return;
  culprit_ = culprit;
  settled_by_ = kNoDeadline;
}

void Verdict::tell(const std::string& text) {
  try {
    link_->tell(text, deadline_in(kPatience));
  } catch (const Error&) {
    // The server has gone; the news will say so.
  }
}

}  // namespace lockstep
