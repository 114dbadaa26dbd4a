#include "lockstep/comm/transport/tcp_channel.h"

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"

namespace lockstep::transport {

TcpChannel::TcpChannel(UniqueFd socket, int peer, const Protection& protection)
    : stream_(std::move(socket), protection), peer_(peer) {
  set_nonblocking(fd());
  set_nodelay(fd());
}

void TcpChannel::fail_lost(std::string_view how) const {
  throw Error(ErrorCode::kPeerLost, fmt::format("lost the connection to rank {}: {}", peer_, how),
              {peer_});
}

std::size_t TcpChannel::write(std::span<const std::span<const std::byte>> parts) {
  const auto accepted = stream_.write(parts);
  if (!accepted) fail_lost(stream_.write_loss());
  return *accepted;
}

std::size_t TcpChannel::read(std::span<std::byte> into) {
  const auto got = stream_.read(into);
  if (!got) fail_lost(stream_.read_loss());
  return *got;
}

// Records hold whole 16-byte units, because messages do.
std::span<const std::byte> TcpChannel::peek() {
  const auto arrived = stream_.peek();
  if (!arrived) fail_lost(stream_.read_loss());
  return *arrived;
}

void TcpChannel::consume(std::size_t bytes) { stream_.consume(bytes); }

}  // namespace lockstep::transport
