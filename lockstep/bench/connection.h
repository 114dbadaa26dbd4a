// Lines of text over a local stream socket, between the bench and its workers.
//
// The sockets are abstract Unix sockets: they have a name but no file, so nothing is left behind.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::bench {

// A file descriptor that closes itself.
class Handle {
 public:
  explicit Handle(int fd = -1) : fd_(fd) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  void reset();

 private:
  int fd_;
};

class Connection {
 public:
  explicit Connection(Handle socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Throws Error(kPeerLost) when the other side is gone.
  void send_line(std::string_view line);

  // Blocks for one line; nothing once the other side has closed.
  std::optional<std::string> receive_line();

  // Reads what is there without blocking; false once the other side has closed. Then take_line()
  // gives the lines that are complete.
  bool read_some();
  std::optional<std::string> take_line();

 private:
  bool read_once(int flags);

  Handle socket_;
  std::string buffer_;
};

Connection connect_to(const std::string& name);

// A listening socket of a name that nobody can guess or take before us.
struct Listener {
  Handle socket;
  std::string name;
};
Listener listen_anywhere();

// The next connection of a process of this user; nothing when none is waiting. Processes of other
// users are turned away.
struct Accepted {
  Connection connection;
  int pid;
};
std::optional<Accepted> accept_from(const Listener& listener);

}  // namespace lockstep::bench
