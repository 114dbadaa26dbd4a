// Drives messages over any mixture of rings and sockets. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "lockstep/comm/fault.h"
#include "lockstep/comm/shared/waiter.h"
#include "lockstep/comm/transport/message.h"

namespace lockstep {

// Callbacks during waits. Either may be empty.
struct Watch {
  // Called from time to time during long waits, with the awaited peers; throws to end the wait.
  std::function<void(std::chrono::nanoseconds waited, const std::vector<int>& awaited)> look;
  // The ranks at fault when these peers did not answer in time.
  std::function<std::vector<int>(const std::vector<int>& awaited)> blame;
};

class ChannelProgress : public transport::Progress {
 public:
  // `doorbell` is this rank's, rung by ring channels; null where all channels are sockets.
  ChannelProgress(shared::Doorbell* doorbell, shared::WaitPolicy wait_policy,
                  std::chrono::nanoseconds timeout, const Fault& fault, Watch watch)
      : doorbell_(doorbell),
        wait_policy_(wait_policy),
        timeout_(timeout),
        fault_(fault),
        watch_(std::move(watch)) {}

  void complete(std::span<transport::OutgoingMessage> outgoing,
                std::span<transport::IncomingMessage> incoming) override;

 private:
  struct Pending;
  void wait(Pending& pending);
  void sleep_on_sockets(const Pending& pending, std::chrono::milliseconds timeout);
  void check(const Pending& pending, std::chrono::nanoseconds waited) const;

  shared::Doorbell* doorbell_;
  shared::WaitPolicy wait_policy_;
  std::chrono::nanoseconds timeout_;
  const Fault& fault_;
  Watch watch_;
};

}  // namespace lockstep
