// The rendezvous: a server through which the ranks of a job find each other.
//
// An exchange collects one blob (an address, a version, ...) from every rank under a key and sends
// all of them to every rank. Ranks and launchers have separate exchanges.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/net/host_port.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/token.h"

namespace lockstep {

namespace rendezvous {
class ServerLoop;
}

struct RendezvousOptions {
  int nodes = 1;  // launchers that may join with a NodeLink
  // When that many have joined, node 0 among them, the others have that long; 0: all must join. One
  // that has not has an empty blob, and may join later.
  int least_nodes = 0;
  std::chrono::milliseconds wait_for_nodes{0};
  int least_ranks = 0;  // that may meet, where it may be fewer than all; 0: all
  std::chrono::milliseconds handshake_timeout{5000};  // the time for a handshake
  std::size_t most_strangers =
      256;  // connections without a completed handshake; beyond, the oldest is dropped
  // Called with a sentence about dropped connections, at most once in `notice_every`, on the
  // server's thread. Unset: standard error.
  std::function<void(const std::string&)> notice;
  std::chrono::milliseconds notice_every{10000};
};

// Serves in its own thread until destruction; pending replies are still delivered for up to a
// second. A client that is slow, malformed or without the token is dropped without delaying others.
class RendezvousServer {
 public:
  // Port 0: any free port; address() has it. Throws Error(kSystem) if the port is in use.
  RendezvousServer(const HostPort& listen, const Token& token, int size,
                   RendezvousOptions options = {});
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  const HostPort& address() const;
  std::size_t dropped_connections()
      const;  // of clients that did not prove the token or broke the protocol

 private:
  std::unique_ptr<rendezvous::ServerLoop> loop_;
};

// The address on which a server must listen so that clients reach it at `meeting`: that address, or
// all interfaces if clients are on other machines and this machine resolves its own name to the
// loopback (as on Debian).
HostPort listen_address(const HostPort& meeting, bool clients_come_from_other_machines);

// Takes part in the exchange `key` as `rank` of `size`; element r of the result is rank r's blob.
// Waits for the server to start. A blob has at most 63 KiB. Errors: kTimeout with the missing
// ranks; kMismatch if this rank or its size does not match the job; kPeerLost if a rank left early;
// kUnauthorized for another token; kAborted after a stop request.
std::vector<std::string> exchange(const HostPort& server, const Token& token, std::string_view key,
                                  int rank, int size, std::string_view blob, Deadline deadline,
                                  const std::stop_token& stop = {});

}  // namespace lockstep
