// The client's side of the rendezvous protocol, shared by ranks and launchers.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/net/host_port.h"
#include "lockstep/comm/rendezvous/token.h"
#include "lockstep/comm/rendezvous/wire.h"

namespace lockstep::rendezvous {

struct Client {
  RecordStream stream;
  FrameBuffer incoming;
};

// Connects, waiting for the server to start, and proves the token.
Client connect_to_server(const HostPort& server, const Token& token, Deadline deadline,
                         const std::stop_token& stop = {});

// See exchange() in rendezvous.h.
std::vector<std::string> exchange_on(Client& client, Group group, std::string_view key, int member,
                                     int size, std::string_view blob, Deadline deadline);

}  // namespace lockstep::rendezvous
