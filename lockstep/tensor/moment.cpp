#include "lockstep/tensor/moment.h"

#include "lockstep/base/error.h"

namespace lockstep {

double Moment::seconds_since(const Moment& earlier) const {
  if ((state_ == nullptr) != (earlier.state_ == nullptr)) {
    fail(ErrorCode::kInvalidArgument, "two moments of different devices have no time between them");
  }
  if (state_ != nullptr) return state_->seconds_since(*earlier.state_);
  return std::chrono::duration<double>(when_ - earlier.when_).count();
}

std::optional<SteadyClock::time_point> Moment::host_time() const {
  return state_ == nullptr ? std::optional(when_) : std::nullopt;
}

}  // namespace lockstep
