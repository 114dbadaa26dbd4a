// How the ranks of a job find each other: one server that all of them can reach.
//
// An exchange collects one blob (an address, a version, ...) from every rank under a key and hands
// all of them to everybody. The ranks of the job and the launchers of its nodes exchange apart.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
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
  int nodes = 1;                                      // launchers that may join with a NodeLink
  std::chrono::milliseconds handshake_timeout{5000};  // how long a stranger may take
  std::size_t most_strangers = 256;  // connections that have proved nothing; the oldest must go
  // Gets a sentence about dropped connections, at most one in `notice_every`; called from the
  // server's thread. Nothing set: standard error.
  std::function<void(const std::string&)> notice;
  std::chrono::milliseconds notice_every{10000};
};

// Serves in a thread of its own until it is destroyed; what has been promised to clients by then is
// still delivered, if they take it within a second. Nobody can disturb it without the token: a
// client that is slow, speaks nonsense or holds another token is dropped, and costs the others
// nothing.
class RendezvousServer {
 public:
  // Port 0 means any; address() then tells. Error(kSystem) when the port is taken.
  RendezvousServer(const HostPort& listen, const Token& token, int size,
                   RendezvousOptions options = {});
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  const HostPort& address() const;
  std::size_t dropped_connections() const;  // of clients that proved nothing or broke the protocol

 private:
  std::unique_ptr<rendezvous::ServerLoop> loop_;
};

// Where a server must listen so that clients can reach it at `meeting`: there; or on all
// interfaces, where clients come from other machines and this machine knows its own name only as
// the loopback (as Debian sets it up).
HostPort listen_address(const HostPort& meeting, bool clients_come_from_other_machines);

// Takes part in the exchange `key` as `rank` of `size`; element r of the result is rank r's blob.
// A server that is not there yet is waited for. A blob has at most 63 KiB.
// Errors: kTimeout names the ranks that did not come; kMismatch when this rank or its size does not
// fit the job; kPeerLost when a rank left before all had come; kUnauthorized for another token.
std::vector<std::string> exchange(const HostPort& server, const Token& token, std::string_view key,
                                  int rank, int size, std::string_view blob, Deadline deadline);

}  // namespace lockstep
