#include "lockstep/parallel/server/worker_link.h"

namespace lockstep::parallel {
namespace {

constexpr auto kLastWords = std::chrono::seconds(2);  // to reach the servers
constexpr Priority kAfterAllElse = static_cast<Priority>(-1);

}  // namespace

void WorkerLink::run() {
  try {
    while (send_posted()) hub_.step(kNoDeadline);
  } catch (const Error& error) {
    fail_with(error);
  } catch (const std::exception& error) {
    fail_with(Error(ErrorCode::kSystem, error.what()));
  }
  leave();
}

// Hands over to the hub what was posted and what may be pushed; false when it is time to leave.
bool WorkerLink::send_posted() {
  const Lock lock(mutex_);
  bytes_sent_ = hub_.bytes_sent();
  for (auto& [connection, message] : std::exchange(posted_, {})) {
    hub_.post(connection, std::move(message));
  }
  while (const std::optional<std::size_t> piece = queue_.next()) {
    const Piece& each = layout_.pieces[*piece];
    const Tensor gradients = part(states_.gradients, each);
    hub_.post(each.server, {.header = {.kind = Kind::kPush,
                                       .piece = static_cast<std::uint32_t>(*piece),
                                       .round = round_,
                                       .bytes = gradients.bytes()},
                            .payload = {gradients.data(), gradients.bytes()},
                            .owner = nullptr,
                            .priority = options_.schedule == PieceSchedule::kPriority
                                            ? static_cast<Priority>(each.block + 1)
                                            : 1});
  }
  return !closing_ && !fault_;
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
    if (hub_.is_open(connection)) hub_.post(connection, std::move(goodbye));
  }
  hub_.finish(deadline_in(kLastWords));
}

}  // namespace lockstep::parallel
