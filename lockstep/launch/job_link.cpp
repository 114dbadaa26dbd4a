#include "lockstep/launch/job_link.h"

#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

void JobLink::tell(std::string_view text) {
  constexpr std::chrono::seconds kTimeout{2};
  if (link_ == nullptr) {
    own_.push_back({.text = std::string(text)});
    return;
  }
  if (!link_->is_open()) return;
  try {
    link_->tell(text, deadline_in(kTimeout));
  } catch (const Error& error) {
    log_debug("cannot send a text to the other launchers: {}", error.what());
  }
}

std::vector<NodeLink::News> JobLink::take() {
  if (link_ == nullptr) return std::exchange(own_, {});
  return link_->news();
}

}  // namespace lockstep
