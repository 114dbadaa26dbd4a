#include "lockstep/comm/native/channel_progress.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace lockstep {

using transport::IncomingMessage;
using transport::OutgoingMessage;

namespace {
constexpr auto kNap = std::chrono::milliseconds(20);       // between two checks while asleep
constexpr auto kMixedNap = std::chrono::milliseconds(1);   // where a ring cannot end the sleep
constexpr auto kVerdict = std::chrono::milliseconds(800);  // for news of why a peer went
constexpr int kSocketSpins = 100;                          // each look is a system call

// The message of a collective, or of a send or receive.
template <class Message>
std::string what_is_done(const Message& message) {
  const Fingerprint& print = message.fingerprint();
  if (print.kind != Collective::kSend) return describe(print);
  const bool comes = std::is_same_v<Message, IncomingMessage>;
  return fmt::format("{} {} of {} {} {} rank {}", comes ? "receive" : "send", print.sequence,
                     print.count, name(print.dtype), comes ? "from" : "to", message.peer());
}
}  // namespace

struct ChannelProgress::Pending {
  std::span<OutgoingMessage> outgoing;
  std::span<IncomingMessage> incoming;

  bool progress() {
    bool moved = false;
    for (OutgoingMessage& message : outgoing) {
      if (!message.done()) moved |= message.progress();
    }
    for (IncomingMessage& message : incoming) {
      if (!message.done()) moved |= message.progress();
    }
    return moved;
  }

  bool done() const {
    const auto is_done = [](const auto& message) { return message.done(); };
    return std::all_of(outgoing.begin(), outgoing.end(), is_done) &&
           std::all_of(incoming.begin(), incoming.end(), is_done);
  }

  Deadline due() const {
    Deadline first = kNoDeadline;
    each_unfinished([&](const auto& message, short) { first = std::min(first, message.due()); });
    return first;
  }

  template <class Visit>
  void each_unfinished(Visit&& visit) const {
    for (const OutgoingMessage& message : outgoing) {
      if (!message.done()) visit(message, static_cast<short>(POLLOUT));
    }
    for (const IncomingMessage& message : incoming) {
      if (!message.done()) visit(message, static_cast<short>(POLLIN));
    }
  }
};

void ChannelProgress::complete(std::span<OutgoingMessage> outgoing,
                               std::span<IncomingMessage> incoming) {
  Pending pending{outgoing, incoming};
  try {
    while (!pending.done()) {
      if (!pending.progress()) wait(pending);
    }
  } catch (const Error& error) {
    // A connection that closes says only that its peer went. Why, the control connections know.
    if (error.code() == ErrorCode::kPeerLost && fault_.wait_for(kVerdict))
      fault_.throw_if_present();
    throw;
  }
}

// Returns after progress.
void ChannelProgress::wait(Pending& pending) {
  bool rings = false;
  bool sockets = false;
  pending.each_unfinished(
      [&](const auto& message, short) { (message.channel().fd() < 0 ? rings : sockets) = true; });
  if (rings && !sockets) {
    shared::Waiter waiter(*doorbell_, wait_policy_,
                          [&](std::chrono::nanoseconds waited) { check(pending, waited); });
    waiter.until([&] { return pending.progress(); }, [&] { return pending.due(); });
    return;
  }
  const int spins = wait_policy_.crowded ? 0 : kSocketSpins;
  for (int i = 0; i < spins; ++i) {
    if (pending.progress()) return;
    cpu_relax();
  }
  const auto start = SteadyClock::now();
  while (!pending.progress()) {
    sleep_on_sockets(pending, rings ? kMixedNap : kNap);
    check(pending, SteadyClock::now() - start);
  }
}

void ChannelProgress::sleep_on_sockets(const Pending& pending, std::chrono::milliseconds timeout) {
  std::vector<pollfd> polls;
  pending.each_unfinished([&](const auto& message, short events) {
    if (message.channel().fd() >= 0) polls.push_back({message.channel().fd(), events, 0});
  });
  ::poll(polls.data(), polls.size(), static_cast<int>(timeout.count()));
}

void ChannelProgress::check(const Pending& pending, std::chrono::nanoseconds waited) const {
  fault_.throw_if_present();
  std::vector<int> awaited;
  pending.each_unfinished([&](const auto& message, short) {
    if (std::find(awaited.begin(), awaited.end(), message.peer()) == awaited.end()) {
      awaited.push_back(message.peer());
    }
  });
  if (watch_.look) watch_.look(waited, awaited);
  if (waited < timeout_) return;
  if (watch_.blame) awaited = watch_.blame(awaited);
  std::sort(awaited.begin(), awaited.end());
  std::string what;
  pending.each_unfinished([&](const auto& message, short) { what = what_is_done(message); });
  throw overdue(what, waited, std::move(awaited));
}

}  // namespace lockstep
