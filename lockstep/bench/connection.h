// Lines of text over a local stream socket, between the bench and its workers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/file/fd.h"

namespace lockstep::bench {

class Connection {
 public:
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Throws Error(kPeerLost) if the peer is lost.
  void send_line(std::string_view line);

  // Sleeps until a line has come; nothing once the other side has closed.
  std::optional<std::string> receive_line();

  // Reads what is there without waiting; false once the other side has closed. Then take_line()
  // gives the lines that are complete.
  bool read_some();
  std::optional<std::string> take_line();

 private:
  UniqueFd socket_;
  std::string buffer_;
};

// The socket of a bench for its workers: an abstract Unix socket with a random name.
struct MeetingPoint {
  UniqueFd socket;
  std::string name;
};
MeetingPoint open_meeting_point();

Connection connect_to(std::string_view name);

// The next connection of a process of this user; nothing when none is waiting. Processes of other
// users are rejected.
struct Accepted {
  Connection connection;
  int pid;
};
std::optional<Accepted> accept_at(const MeetingPoint& meeting);

}  // namespace lockstep::bench
