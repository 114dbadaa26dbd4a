#include "lockstep/bench/connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

constexpr int kBacklog = 128;

struct Address {
  sockaddr_un storage{};
  socklen_t length;

  explicit Address(const std::string& name) {
    storage.sun_family = AF_UNIX;
    if (name.size() + 1 > sizeof storage.sun_path) {
      fail(ErrorCode::kInvalidArgument, "'{}' is too long for the name of a socket", name);
    }
    std::memcpy(storage.sun_path + 1, name.data(), name.size());  // a leading zero: abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Handle open_socket(int flags) {
  Handle socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (socket.get() < 0) fail_errno("cannot make a local socket", errno);
  return socket;
}

}  // namespace

void Handle::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Connection::send_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t sent = ::send(fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      fail(ErrorCode::kPeerLost, "the other side of the bench's connection is gone");
    } else if (errno != EINTR) {
      fail_errno("cannot write to the bench's connection", errno);
    }
  }
}

bool Connection::read_once(int flags) {
  char bytes[65536];
  while (true) {
    const ssize_t got = ::recv(fd(), bytes, sizeof bytes, flags);
    if (got > 0) {
      buffer_.append(bytes, static_cast<std::size_t>(got));
      return true;
    }
    if (got == 0 || errno == ECONNRESET) return false;
    if (errno == EAGAIN) return true;
    if (errno != EINTR) fail_errno("cannot read from the bench's connection", errno);
  }
}

bool Connection::read_some() { return read_once(MSG_DONTWAIT); }

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
    if (!read_once(0)) return std::nullopt;
  }
}

Connection connect_to(const std::string& name) {
  Handle socket = open_socket(0);
  const Address address(name);
  if (::connect(socket.get(), address.get(), address.length) != 0) {
    fail_errno(fmt::format("cannot reach the bench at '@{}'", name), errno);
  }
  return Connection(std::move(socket));
}

Listener listen_anywhere() {
  std::uint64_t secret[2];
  if (::getrandom(secret, sizeof secret, 0) != sizeof secret) {
    fail_errno("cannot get random bytes", errno);
  }
  Listener listener{open_socket(SOCK_NONBLOCK),
                    fmt::format("lockstep-bench-{:016x}{:016x}", secret[0], secret[1])};
  const Address address(listener.name);
  if (::bind(listener.socket.get(), address.get(), address.length) != 0 ||
      ::listen(listener.socket.get(), kBacklog) != 0) {
    fail_errno("cannot listen for bench workers", errno);
  }
  return listener;
}

std::optional<Accepted> accept_from(const Listener& listener) {
  while (true) {
    Handle socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return std::nullopt;
      fail_errno("cannot accept a bench worker", errno);
    }
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
      fail_errno("cannot tell who connects to the bench", errno);
    }
    if (peer.uid == ::geteuid()) return Accepted{Connection(std::move(socket)), peer.pid};
  }
}

}  // namespace lockstep::bench
