// One client of the rendezvous server, as the server sees it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/handshake.h"
#include "lockstep/comm/rendezvous/wire.h"

namespace lockstep::rendezvous {

// A connection starts as a stranger: until it has proved the token, not more than the bytes of one
// answer are read from it. Nothing here waits.
class Connection {
 public:
  Connection(UniqueFd fd, const Token& token, Deadline handshake_deadline);

  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  bool is_stranger() const { return handshake_.has_value(); }
  Deadline handshake_deadline() const { return handshake_deadline_; }

  // Reads what is there; false when the peer has gone. Error(kUnauthorized) for a wrong answer.
  bool read();
  // The next whole frame of a client that is no stranger. Error(kProtocol) for nonsense.
  std::optional<std::string> next_frame();

  void push(std::shared_ptr<const std::string> frames) { outgoing_.push(std::move(frames)); }
  void push(std::string frame) { outgoing_.push(std::move(frame)); }
  bool has_output() const { return !outgoing_.empty(); }
  // Writes what the socket takes; false when the peer has gone.
  bool write() { return outgoing_.flush_to(fd_.get()); }

 private:
  bool read_answer();

  UniqueFd fd_;
  std::string peer_;
  Deadline handshake_deadline_;
  std::optional<ServerHandshake> handshake_;
  Answer answer_{};
  std::size_t answered_ = 0;
  FrameBuffer incoming_;
  OutQueue outgoing_;
};

}  // namespace lockstep::rendezvous
