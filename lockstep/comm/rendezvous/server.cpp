#include "lockstep/base/net/socket.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/comm/rendezvous/server_loop.h"

namespace lockstep {

HostPort listen_address(const HostPort& meeting, bool clients_come_from_other_machines) {
  if (clients_come_from_other_machines && !is_loopback(meeting.host) &&
      resolves_to_loopback(meeting.host)) {
    return {"0.0.0.0", meeting.port};
  }
  return meeting;
}

RendezvousServer::RendezvousServer(const HostPort& listen, const Token& token, int size,
                                   RendezvousOptions options)
    : loop_(std::make_unique<rendezvous::ServerLoop>(listen, token, size, std::move(options))) {}

RendezvousServer::~RendezvousServer() = default;

const HostPort& RendezvousServer::address() const { return loop_->address(); }

std::size_t RendezvousServer::dropped_connections() const { return loop_->dropped(); }

}  // namespace lockstep
