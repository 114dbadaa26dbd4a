#include "lockstep/comm/transport/tcp_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"

namespace lockstep::transport {
namespace {

// Large enough that a system call is nothing against it, small enough to stay in the L2 cache
// between arriving and being reduced.
constexpr std::size_t kBlock = std::size_t{256} * 1024;

}  // namespace

TcpChannel::TcpChannel(UniqueFd socket, int peer) : socket_(std::move(socket)), peer_(peer) {
  set_nonblocking(socket_.get());
  set_nodelay(socket_.get());
}

void TcpChannel::fail_lost(std::string_view how) const {
  throw Error(ErrorCode::kPeerLost, fmt::format("lost the connection to rank {}: {}", peer_, how),
              {peer_});
}

std::size_t TcpChannel::write(std::span<const std::span<const std::byte>> parts) {
  std::array<iovec, 4> vectors;
  std::size_t used = 0;
  for (const auto part : parts) {
    if (part.empty() || used == vectors.size()) continue;
    vectors[used++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  if (used == 0) return 0;
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = used;
  while (true) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) fail_lost(std::generic_category().message(errno));
  }
}

std::size_t TcpChannel::receive(std::span<std::byte> into) {
  while (true) {
    const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) fail_lost("it closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) fail_lost(std::generic_category().message(errno));
  }
}

std::size_t TcpChannel::read(std::span<std::byte> into) {
  if (into.empty()) return 0;
  if (begin_ < end_) {
    const std::size_t bytes = std::min(into.size(), end_ - begin_);
    std::memcpy(into.data(), buffer_.data() + begin_, bytes);
    consume(bytes);
    return bytes;
  }
  if (into.size() >= kBlock) return receive(into);
  // A small read, most likely a header: take what follows it along in the same system call.
  peek();
  return begin_ < end_ ? read(into) : 0;
}

std::span<const std::byte> TcpChannel::peek() {
  if (buffer_.empty()) buffer_.resize(kBlock);
  if (begin_ > 0 && end_ - begin_ < 16) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ - begin_ < 16) {
    end_ += receive({buffer_.data() + end_, buffer_.size() - end_});
  }
  return {buffer_.data() + begin_, end_ - begin_};
}

void TcpChannel::consume(std::size_t bytes) {
  begin_ += bytes;
  if (begin_ == end_) begin_ = end_ = 0;
}

}  // namespace lockstep::transport
