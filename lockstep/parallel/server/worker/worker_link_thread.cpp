// The thread of a worker's link: what it sends, and how it leaves.
#include "lockstep/parallel/server/worker/worker_link.h"

namespace lockstep::parallel {
namespace {

constexpr auto kLastWords = std::chrono::seconds(2);  // to reach the servers
constexpr int kSignsInTimeout = 4;                    // of life
constexpr Priority kAfterAllElse = static_cast<Priority>(-1);

}  // namespace

void WorkerLink::run() {
  shows_life_ = deadline_in(timeout_ / kSignsInTimeout);
  try {
    // Slice by slice, so that what comes is not left lying while others are encoded.
    while (!has_ended()) {
      const Deadline next = show_life();
      loop_.step(push_next() ? Deadline() : next);
    }
  } catch (const Error& error) {
    fail_with(error);
  } catch (const std::exception& error) {
    fail_with(Error(ErrorCode::kSystem, error.what()));
  }
  leave();
}

// With the mutex.
void WorkerLink::send_posted() {
  bytes_sent_ = loop_.bytes_sent();
  for (auto& [connection, message] : std::exchange(posted_, {})) {
    loop_.post(connection, std::move(message));
  }
}

bool WorkerLink::has_ended() {
  const Lock lock(mutex_);
  send_posted();  // what was said before it counts
  return closing_ || fault_;
}

// The next slice that may be pushed; false where there is none.
bool WorkerLink::push_next() {
  std::optional<std::size_t> slice;
  Header header{.kind = Kind::kPush};
  {
    const Lock lock(mutex_);
    send_posted();  // the request that the slice belongs to may have come since
    slice = queue_.next();
    if (!slice) return false;
    header.slice = static_cast<std::uint32_t>(*slice);
    header.round = round_;
    header.number = static_cast<double>(step_);
  }
  const Slice& each = layout_.slices[*slice];
  const auto payload = codec_->encode(*slice, part(states_.gradients, each),
                                      static_cast<std::int64_t>(header.number));
  header.bytes = payload.size();
  loop_.post(
      each.server,
      {.header = header, .payload = payload, .owner = nullptr, .priority = priority_of(*slice)});
  return true;
}

// Sends a sign of life. Where workers do not wait for each other, nothing else distinguishes a
// computing worker from a stopped one. Returns when to send the next.
Deadline WorkerLink::show_life() {
  if (options_.consistency == Consistency::kBsp) return kNoDeadline;
  if (has_passed(shows_life_)) {
    loop_.post(control_, small_message({.kind = Kind::kAlive}));
    shows_life_ = deadline_in(timeout_ / kSignsInTimeout);
  }
  return shows_life_;
}

void WorkerLink::fail_with(const Error& error) {
  const Lock lock(mutex_);
  if (!fault_) fault_ = error;
  changed_.notify_all();
}

void WorkerLink::leave() {
  std::optional<Error> fault;
  {
    const Lock lock(mutex_);
    fault = fault_;
  }
  const std::string why = encode_fault(fault ? &*fault : nullptr);
  for (int connection = 0; connection <= control_; ++connection) {
    OutMessage goodbye = small_message({.kind = Kind::kGoodbye}, why);
    goodbye.priority = fault ? kUrgent : kAfterAllElse;
    if (loop_.is_open(connection)) loop_.post(connection, std::move(goodbye));
  }
  loop_.finish(deadline_in(kLastWords));
}

}  // namespace lockstep::parallel
