#include "lockstep/base/net/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/text/hex.h"

namespace lockstep {
namespace {

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

AbstractAddress abstract_address(std::string_view name) {
  AbstractAddress result;
  constexpr std::size_t kLongestName = sizeof result.address.sun_path - 1;
  if (name.empty() || name.size() > kLongestName) {
    fail(ErrorCode::kInvalidArgument, "a local socket's name has 1 to {} bytes, '{}' has {}",
         kLongestName, name, name.size());
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

UniqueFd unix_stream() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno("cannot make a local socket", errno);
  return fd;
}

using ControlBuffer = std::array<std::byte, CMSG_SPACE(sizeof(int) * kMostFdsPerMessage)>;

// Owns every descriptor that came with a message.
void take_fds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

std::string random_unix_name() {
  std::array<std::byte, 16> bytes;
  fill_random(bytes);
  return "lockstep-" + to_hex(bytes);
}

UniqueFd listen_unix_abstract(std::string_view name, int backlog) {
  const AbstractAddress address = abstract_address(name);
  UniqueFd fd = unix_stream();
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), backlog) != 0) {
    fail_errno(fmt::format("cannot listen on the local socket '{}'", name), errno);
  }
  return fd;
}

UniqueFd connect_unix_abstract(std::string_view name, Deadline deadline) {
  const AbstractAddress address = abstract_address(name);
  UniqueFd fd = unix_stream();
  while (::connect(fd.get(), address.get(), address.length) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED) {
      fail(ErrorCode::kPeerLost, "nobody listens on the local socket '{}' of this machine", name);
    }
    if (errno != EAGAIN) fail_errno(fmt::format("cannot connect to '{}'", name), errno);
    // The listener's queue is full, and no event reports when it has space again.
    constexpr std::chrono::milliseconds kPause{2};
    if (has_passed(deadline)) {
      fail(ErrorCode::kTimeout, "the local socket '{}' did not accept in time", name);
    }
    ::poll(nullptr, 0, poll_milliseconds(std::min(deadline, deadline_in(kPause))));
  }
  return fd;
}

void send_with_fds(int socket, std::span<const std::byte> data, std::span<const int> fds,
                   Deadline deadline) {
  if (data.empty() || fds.size() > kMostFdsPerMessage) {
    fail(ErrorCode::kInvalidArgument,
         "descriptors travel with at least one byte and at most {} at a time, not {} bytes and {}",
         kMostFdsPerMessage, data.size(), fds.size());
  }
  alignas(cmsghdr) ControlBuffer control{};
  iovec part{const_cast<std::byte*>(data.data()), data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (true) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) return send_all(socket, data.subspan(static_cast<std::size_t>(sent)), deadline);
    if (errno == EPIPE || errno == ECONNRESET) {
      fail(ErrorCode::kPeerLost, "the peer closed the local socket");
    }
    if (errno != EAGAIN && errno != EINTR) fail_errno("cannot send descriptors", errno);
    if (!wait_for_fd(socket, POLLOUT, deadline)) {
      fail(ErrorCode::kTimeout, "the peer did not take {} bytes in time", data.size());
    }
  }
}

std::vector<UniqueFd> receive_with_fds(int socket, std::span<std::byte> data, std::size_t most_fds,
                                       Deadline deadline) {
  std::vector<UniqueFd> fds;
  while (!data.empty()) {
    alignas(cmsghdr) ControlBuffer control{};
    iovec part{data.data(), data.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0) {
      take_fds(message, fds);
      if ((message.msg_flags & MSG_CTRUNC) != 0 || fds.size() > most_fds) {
        fail(ErrorCode::kProtocol, "the peer sent more descriptors than the {} expected", most_fds);
      }
      data = data.subspan(static_cast<std::size_t>(got));
    } else if (got == 0 || errno == ECONNRESET) {
      fail(ErrorCode::kPeerLost, "the peer closed the local socket with {} bytes still to come",
           data.size());
    } else if (errno == EAGAIN) {
      if (!wait_for_fd(socket, POLLIN, deadline)) {
        fail(ErrorCode::kTimeout, "the peer did not send {} more bytes in time", data.size());
      }
    } else if (errno != EINTR) {
      fail_errno("cannot receive descriptors", errno);
    }
  }
  return fds;
}

}  // namespace lockstep
