// Keeps messages moving over any mixture of rings and sockets. Threads may share one.
#pragma once

#include <chrono>
#include <functional>

#include "lockstep/comm/fault.h"
#include "lockstep/comm/shared/waiter.h"
#include "lockstep/comm/transport/message.h"

namespace lockstep {

class ChannelProgress : public transport::Progress {
 public:
  // `bell` is this rank's, rung by ring channels; null where all channels are sockets. `check` is
  // called now and then during long waits and throws to end them; it may be empty.
  ChannelProgress(shared::Bell* bell, shared::Patience patience, std::chrono::nanoseconds timeout,
                  const Fault& fault, std::function<void()> check)
      : bell_(bell),
        patience_(patience),
        timeout_(timeout),
        fault_(fault),
        check_(std::move(check)) {}

  void complete(std::span<transport::OutgoingMessage> outgoing,
                std::span<transport::IncomingMessage> incoming) override;

 private:
  struct Pending;
  void wait(Pending& pending);
  void sleep_on_sockets(const Pending& pending, std::chrono::milliseconds patience);
  void check(const Pending& pending, std::chrono::nanoseconds waited) const;

  shared::Bell* bell_;
  shared::Patience patience_;
  std::chrono::nanoseconds timeout_;
  const Fault& fault_;
  std::function<void()> check_;
};

}  // namespace lockstep
