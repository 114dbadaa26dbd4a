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

  // Error(kPeerLost) when the other side is gone.
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

// Where workers find their bench: an abstract Unix socket, so nothing is left behind, under a name
// that nobody can guess.
struct MeetingPoint {
  UniqueFd socket;
  std::string name;
};
MeetingPoint open_meeting_point();

Connection connect_to(std::string_view name);

// The next connection of a process of this user; nothing when none is waiting. Processes of other
// users are turned away.
struct Accepted {
  Connection connection;
  int pid;
};
std::optional<Accepted> accept_at(const MeetingPoint& meeting);

}  // namespace lockstep::bench
