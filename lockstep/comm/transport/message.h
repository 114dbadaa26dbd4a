// Messages over a Channel. progress() moves a message as far as the channel allows, and the next
// call continues there.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/history.h"
#include "lockstep/comm/reduce_op.h"
#include "lockstep/comm/transport/channel.h"

namespace lockstep::transport {

struct MessageHeader {
  std::uint64_t hash = 0;   // of the fingerprint
  std::uint64_t bytes = 0;  // of the payload
  Fingerprint fingerprint;
};
static_assert(sizeof(MessageHeader) % 16 == 0);

class OutgoingMessage {
 public:
  OutgoingMessage(Channel& channel, int peer, const Fingerprint& fingerprint,
                  std::span<const std::byte> payload);
  // Returns whether any byte moved.
  bool progress();
  bool done() const { return sent_ == total_; }
  Deadline due() const { return channel_->write_due(); }
  const Fingerprint& fingerprint() const { return header_.fingerprint; }
  int peer() const { return peer_; }
  Channel& channel() const { return *channel_; }

 private:
  Channel* channel_;
  int peer_;
  MessageHeader header_;
  std::span<const std::byte> payload_;
  std::size_t sent_ = 0;
  std::size_t total_;
};

// How an incoming payload is used.
struct Landing {
  std::byte* target = nullptr;
  std::size_t bytes = 0;
  // If not null: target = operand op the received elements.
  const std::byte* operand = nullptr;
  DType dtype = DType::kF32;
  ReduceOp op;
};

class IncomingMessage {
 public:
  // `history`, if there is one, holds this rank's operations: if the peer is still in an earlier
  // one, that is compared.
  IncomingMessage(Channel& channel, int rank, int peer, const Fingerprint& expected,
                  const Landing& landing, const History* history = nullptr);
  // Returns whether any byte moved. Throws Error(kMismatch) when the peer sends something else, and
  // Error(kCorrupted), with both ranks and the operation, for bytes that changed on their way.
  bool progress();
  bool done() const {
    return header_read_ == sizeof(MessageHeader) && read_ == landing_.bytes && padding_ == 0;
  }
  Deadline due() const { return channel_->read_due(); }
  const Fingerprint& fingerprint() const { return expected_.fingerprint; }
  int peer() const { return peer_; }
  Channel& channel() const { return *channel_; }

 private:
  void check_header() const;
  bool advance();
  bool progress_payload();

  Channel* channel_;
  int rank_;
  int peer_;
  MessageHeader expected_;
  const History* history_;
  MessageHeader header_;
  std::size_t header_read_ = 0;
  Landing landing_;
  std::size_t read_ = 0;
  std::size_t padding_;
};

// Drives messages: waits for the channels between attempts, and checks for errors and deadlines.
class Progress {
 public:
  virtual ~Progress() = default;
  // Returns when all messages are done.
  virtual void complete(std::span<OutgoingMessage> outgoing,
                        std::span<IncomingMessage> incoming) = 0;
};

}  // namespace lockstep::transport
