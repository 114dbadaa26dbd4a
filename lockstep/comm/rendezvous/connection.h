// The server's side of a client that has proved the token.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/rendezvous/wire.h"

namespace lockstep::rendezvous {

// Never blocks.
class Connection {
 public:
  Connection(RecordStream stream, std::string peer)
      : stream_(std::move(stream)), peer_(std::move(peer)) {}

  int fd() const { return stream_.fd(); }
  const std::string& peer() const { return peer_; }

  // Reads what has arrived; false if the peer has closed the connection. Throws Error(kCorrupted).
  bool read() { return incoming_.fill_from(stream_); }
  // The next whole frame. Throws Error(kProtocol) for a malformed one.
  std::optional<std::string> next_frame() { return incoming_.next(); }

  void push(std::shared_ptr<const std::string> frames) { outgoing_.push(std::move(frames)); }
  void push(std::string frame) { outgoing_.push(std::move(frame)); }
  bool has_output() const { return !outgoing_.empty(); }
  // Writes what the socket accepts; false if the peer has closed the connection.
  bool write() { return outgoing_.flush_to(stream_); }

 private:
  RecordStream stream_;
  std::string peer_;
  FrameBuffer incoming_;
  OutQueue outgoing_;
};

}  // namespace lockstep::rendezvous
