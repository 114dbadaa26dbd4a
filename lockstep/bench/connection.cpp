#include "lockstep/bench/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/net/unix_socket.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/base/text/hex.h"

namespace lockstep::bench {
namespace {

// Both sides read at once what the other writes; who does not is stuck.
constexpr std::chrono::seconds kStuckAfter{30};

}  // namespace

void Connection::send_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  send_all(fd(), std::as_bytes(std::span(text)), deadline_in(kStuckAfter));
}

bool Connection::read_some() {
  std::array<char, 65536> bytes;
  while (true) {
    const ssize_t got = ::recv(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      buffer_.append(bytes.data(), static_cast<std::size_t>(got));
      return true;
    }
    if (got == 0 || errno == ECONNRESET) return false;
    if (errno == EAGAIN) return true;
    if (errno != EINTR) fail_errno("cannot read from the bench's connection", errno);
  }
}

std::optional<std::string> Connection::take_line() {
  const auto end = buffer_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

std::optional<std::string> Connection::receive_line() {
  while (true) {
    if (auto line = take_line()) return line;
    wait_for_fd(fd(), POLLIN, kNoDeadline);
    if (!read_some()) return std::nullopt;
  }
}

MeetingPoint open_meeting_point() {
  std::array<std::byte, 16> secret;
  fill_random(secret);
  const std::string name = "lockstep-bench-" + to_hex(secret);
  return {listen_unix_abstract(name), name};
}

Connection connect_to(std::string_view name) {
  return Connection(connect_unix_abstract(name, deadline_in(kStuckAfter)));
}

std::optional<Accepted> accept_at(const MeetingPoint& meeting) {
  while (auto socket = try_accept(meeting.socket.get())) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
      fail_errno("cannot read the credentials of a connection to the bench", errno);
    }
    if (peer.uid == ::geteuid()) return Accepted{Connection(std::move(*socket)), peer.pid};
  }
  return std::nullopt;
}

}  // namespace lockstep::bench
