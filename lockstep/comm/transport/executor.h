// Runs one rank's program of a schedule over channels.
//
// A message is a header, the payload, and padding to 16 bytes. The header repeats the operation's
// fingerprint and the payload's size: the receiver knows both and compares them, so it never trusts
// a received length, and a mismatch is detected.
//
// What is received goes straight to its place, or is reduced there as it arrives, unless the round
// still sends from that place; then it waits in a buffer until the sends are done.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/fault.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/history.h"
#include "lockstep/comm/schedule/schedule.h"
#include "lockstep/comm/shared/waiter.h"
#include "lockstep/comm/transport/channel.h"
#include "lockstep/comm/transport/layout.h"
#include "lockstep/comm/transport/message.h"
#include "lockstep/comm/transport/traffic.h"

namespace lockstep::transport {

// A program, and which of its receives must wait in a buffer.
struct Prepared {
  schedule::Program program;
  int chunks = 1;
  std::vector<std::vector<bool>> deferred;  // [round][step]
};
Prepared prepare(schedule::Program program, int chunks);

class Executor {
 public:
  // `channels[r]` connects to rank r (null for this rank); `history` has this rank's operations;
  // sent bytes are added to `traffic`.
  Executor(int rank, std::vector<Channel*> channels, Progress& progress, const History& history,
           Traffic& traffic)
      : rank_(rank),
        channels_(std::move(channels)),
        progress_(progress),
        history_(history),
        traffic_(traffic) {}

  void run(const Prepared& prepared, const Call& call, const Fingerprint& fingerprint);

 private:
  void run_round(const schedule::Round& round, const std::vector<bool>& deferred,
                 const Layout& layout, const Call& call, const Fingerprint& fingerprint);
  void apply(const schedule::Step& step, const std::byte* arrived, const Layout& layout,
             const Call& call);

  int rank_;
  std::vector<Channel*> channels_;
  Progress& progress_;
  const History& history_;
  Traffic& traffic_;
  std::vector<std::byte> snapshot_;  // the input of an all_to_all in place
  std::vector<std::byte> scratch_;
  std::vector<std::byte> held_;  // received, to be applied at the end of the round
  std::vector<OutgoingMessage> outgoing_;
  std::vector<IncomingMessage> incoming_;
};

}  // namespace lockstep::transport
