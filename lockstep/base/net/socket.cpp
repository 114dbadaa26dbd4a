#include "lockstep/base/net/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

// All addresses of a name; empty, with the reason in `why`, when it has none.
AddressList resolve(const HostPort& address, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) why = error == EAI_SYSTEM ? text_of(errno) : ::gai_strerror(error);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

template <class Value>
void set_option(int fd, int level, int option, Value value, std::string_view what) {
  if (::setsockopt(fd, level, option, &value, sizeof value) != 0) fail_errno(what, errno);
}

std::uint16_t bound_port(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    fail_errno("cannot read the address of a socket", errno);
  }
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(name).sin_port);
}

// A connect to a free local port of the ephemeral range can meet itself: both ends are one socket.
bool is_connected_to_itself(int fd) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof here;
  socklen_t there_length = sizeof there;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_length) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_length) == 0 &&
         here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

// 0, or the error number of what went wrong; ETIMEDOUT when the deadline came.
int connect_one(int fd, const addrinfo& address, Deadline deadline) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (!wait_for_fd(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

// One attempt over all addresses of the name; empty, with the reason in `why`, when none answers.
UniqueFd attempt_connect(const HostPort& address, Deadline deadline, std::string& why) {
  const AddressList addresses = resolve(address, 0, why);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    UniqueFd fd(
        ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (!fd && (errno == EMFILE || errno == ENFILE)) fail_errno("cannot make a socket", errno);
    if (!fd) {
      why = text_of(errno);
      continue;
    }
    int error = connect_one(fd.get(), *at, deadline);
    if (error == 0 && is_connected_to_itself(fd.get())) error = ECONNREFUSED;
    if (error == 0) return fd;
    why = text_of(error);
  }
  return {};
}

bool means_peer_lost(int error_number) {
  return error_number == ECONNRESET || error_number == EPIPE || error_number == ETIMEDOUT ||
         error_number == EHOSTUNREACH || error_number == ENETUNREACH ||
         error_number == ECONNABORTED || error_number == ENETDOWN;
}

[[noreturn]] void fail_transfer(std::string_view what, int error_number) {
  if (means_peer_lost(error_number)) {
    fail(ErrorCode::kPeerLost, "{}: {}", what, text_of(error_number));
  }
  fail_errno(what, error_number);
}

std::string name_of(const sockaddr_storage& address, socklen_t length, bool with_port) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (length < sizeof(sa_family_t) ||
      (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
    return address.ss_family == AF_UNIX ? "a local socket" : "unknown";
  }
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return with_port ? format_host_port({host, parse_port(port)}) : host;
}

}  // namespace

Listener listen_tcp(const HostPort& address, int backlog) {
  std::string why;
  const AddressList addresses = resolve(address, AI_PASSIVE, why);
  if (!addresses) {
    fail(ErrorCode::kSystem,
         "cannot listen on {}: the name '{}' has no address here ({}); name an address of this "
         "machine, or 127.0.0.1",
         format_host_port(address), address.host, why);
  }
  int error = 0;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    UniqueFd fd(
        ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (!fd) {
      error = errno;
      continue;
    }
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "cannot set SO_REUSEADDR");
    if (::bind(fd.get(), at->ai_addr, at->ai_addrlen) != 0 || ::listen(fd.get(), backlog) != 0) {
      error = errno;
      continue;
    }
    const std::uint16_t port = bound_port(fd.get());
    return {std::move(fd), {address.host, port}};
  }
  if (error == EADDRINUSE) {
    fail(ErrorCode::kSystem,
         "cannot listen on {}: port {} is in use by another program; end that program, name "
         "another port, or port 0 for any that is free",
         format_host_port(address), address.port);
  }
  if (error == EADDRNOTAVAIL) {
    fail(ErrorCode::kSystem,
         "cannot listen on {}: '{}' is not an address of this machine; use one that is, or "
         "127.0.0.1",
         format_host_port(address), address.host);
  }
  fail_errno("cannot listen on " + format_host_port(address), error);
}

UniqueFd connect_tcp(const HostPort& address, Deadline deadline, Retry retry,
                     const std::stop_token& stop) {
  // Of a machine that does not answer; then the stop request is looked at.
  constexpr std::chrono::seconds kAttempt{2};
  constexpr std::chrono::milliseconds kLongestPause{200};
  constexpr std::chrono::seconds kUnremarkable{2};  // for a server to come up
  const Deadline remarkable = deadline_in(kUnremarkable);
  std::chrono::milliseconds pause{5};
  bool told = false;
  std::string why = "no attempt was made";
  while (true) {
    throw_if_stopped(stop);
    const bool may_stop = stop.stop_possible() && retry == Retry::kUntilDeadline;
    const Deadline end = may_stop ? std::min(deadline, deadline_in(kAttempt)) : deadline;
    if (UniqueFd fd = attempt_connect(address, end, why)) return fd;
    if (has_passed(deadline)) {
      fail(ErrorCode::kTimeout, "could not connect to {} in time; the last attempt failed: {}",
           format_host_port(address), why);
    }
    if (retry == Retry::kNo) {
      fail(ErrorCode::kPeerLost, "cannot connect to {}: {}", format_host_port(address), why);
    }
    if (!told && has_passed(remarkable)) {
      log_warn("cannot connect to {} yet, still trying: {}", format_host_port(address), why);
      told = true;
    }
    ::poll(nullptr, 0, poll_milliseconds(std::min(deadline, deadline_in(pause))));
    pause = std::min(2 * pause, kLongestPause);
  }
}

ShutdownOnStop::ShutdownOnStop(int socket, const std::stop_token& stop)
    : callback_(stop, Shutdown{socket}) {}

void ShutdownOnStop::Shutdown::operator()() const { ::shutdown(socket, SHUT_RDWR); }

void throw_if_stopped(const std::stop_token& stop) {
  if (stop.stop_requested()) fail(ErrorCode::kAborted, "this rank leaves the others");
}

std::optional<UniqueFd> try_accept(int listener) {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) return UniqueFd(fd);
  constexpr int kPassing[] = {EAGAIN, EINTR, ECONNABORTED, EPROTO, ENETDOWN, EHOSTDOWN};
  if (std::ranges::find(kPassing, errno) != std::end(kPassing)) return std::nullopt;
  fail_errno("cannot accept a connection", errno);
}

UniqueFd accept_connection(int listener, Deadline deadline) {
  while (wait_for_fd(listener, POLLIN, deadline)) {
    if (auto fd = try_accept(listener)) return std::move(*fd);
  }
  fail(ErrorCode::kTimeout, "nobody connected in time");
}

void send_all(int fd, std::span<const std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    const ssize_t sent = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      data = data.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for_fd(fd, POLLOUT, deadline)) {
        fail(ErrorCode::kTimeout, "{} did not take {} more bytes in time", peer_name(fd),
             data.size());
      }
    } else if (errno != EINTR) {
      fail_transfer("cannot send to the peer", errno);
    }
  }
}

void receive_all(int fd, std::span<std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    const ssize_t got = ::recv(fd, data.data(), data.size(), MSG_DONTWAIT);
    if (got > 0) {
      data = data.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      fail(ErrorCode::kPeerLost, "the peer closed the connection with {} bytes still to come",
           data.size());
    } else if (errno == EAGAIN) {
      if (!wait_for_fd(fd, POLLIN, deadline)) {
        fail(ErrorCode::kTimeout, "{} did not send {} more bytes in time", peer_name(fd),
             data.size());
      }
    } else if (errno != EINTR) {
      fail_transfer("cannot receive from the peer", errno);
    }
  }
}

bool resolves_to_loopback(const std::string& host) {
  std::string why;
  const AddressList addresses = resolve({host, 0}, 0, why);
  if (!addresses) return false;
  sockaddr_storage first{};
  std::memcpy(&first, addresses->ai_addr, addresses->ai_addrlen);
  return is_loopback(name_of(first, addresses->ai_addrlen, false));
}

void set_nodelay(int fd) { set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "cannot set TCP_NODELAY"); }

void set_keepalive(int fd, std::chrono::milliseconds timeout) {
  constexpr int kProbes = 3;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(timeout / (kProbes + 1)).count();
  const int interval = static_cast<int>(std::max<std::chrono::seconds::rep>(1, seconds));
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "cannot set SO_KEEPALIVE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval, "cannot set TCP_KEEPIDLE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval, "cannot set TCP_KEEPINTVL");
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes, "cannot set TCP_KEEPCNT");
}

void set_peer_timeout(int fd, std::chrono::milliseconds timeout) {
  set_keepalive(fd, timeout);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<unsigned>(timeout.count()),
             "cannot set TCP_USER_TIMEOUT");
}

bool is_tcp(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  return ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
         protocol == IPPROTO_TCP;
}

std::string peer_name(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
  return name_of(address, length, true);
}

std::string peer_host(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
  return name_of(address, length, false);
}

std::string local_host_towards(const HostPort& address) {
  std::string why;
  const AddressList addresses = resolve(address, 0, why);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    // Connecting a datagram socket only looks up the route.
    const UniqueFd fd(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) return local_host(fd.get());
    why = text_of(errno);
  }
  fail(ErrorCode::kSystem, "no route from this machine to {}: {}", format_host_port(address), why);
}

std::string local_host(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
  return name_of(address, length, false);
}

}  // namespace lockstep
