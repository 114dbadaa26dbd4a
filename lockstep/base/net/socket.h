// Stream sockets with deadlines.
//
// Every descriptor closes on exec. Every wait ends at its deadline with Error(kTimeout); a peer
// that has gone is Error(kPeerLost); signals never cut a call short, and a write to a closed
// connection never raises SIGPIPE. The functions work alike on blocking and nonblocking sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/host_port.h"
#include "lockstep/base/system/deadline.h"

namespace lockstep {

struct Listener {
  UniqueFd fd;
  HostPort address;  // the requested address, with the port that was bound
};

// Port 0 lets the system choose one. A port in use is Error(kSystem) that says what to do.
Listener listen_tcp(const HostPort& address, int backlog = 1024);

enum class Retry { kNo, kUntilDeadline };

// With kUntilDeadline, a server that cannot be reached yet (refused, unreachable, unknown name) is
// retried until the deadline. The error then has the reason of the last failure. After two seconds
// one log line says that it is still being tried, and why. A stop request ends it with
// Error(kAborted).
UniqueFd connect_tcp(const HostPort& address, Deadline deadline, Retry retry = Retry::kNo,
                     const std::stop_token& stop = {});

// While it lives, a stop request shuts the socket down, which ends all waits for it.
class ShutdownOnStop {
 public:
  ShutdownOnStop(int socket, const std::stop_token& stop);

 private:
  struct Shutdown {
    int socket;
    void operator()() const;
  };
  std::stop_callback<Shutdown> callback_;
};
// Throws Error(kAborted) after a stop request.
void throw_if_stopped(const std::stop_token& stop);

// Accepts the next connection of a listening socket of any kind. / The same without waiting:
// nothing if there is no connection, or if the peer has already closed it.
UniqueFd accept_connection(int listener, Deadline deadline);
std::optional<UniqueFd> try_accept(int listener);

void send_all(int fd, std::span<const std::byte> data, Deadline deadline);
void receive_all(int fd, std::span<std::byte> data, Deadline deadline);

// Whether the first address of a name is one that only this machine can reach.
bool resolves_to_loopback(const std::string& host);

void set_nodelay(int fd);

// Makes the kernel drop an idle connection (reads and writes then fail) when the other machine has
// not answered for `timeout`.
void set_keepalive(int fd, std::chrono::milliseconds timeout);
// Like set_keepalive(), also while data is waiting to be sent. It also ends a connection to a
// paused process whose buffer is full, so use it for connections with little traffic.
void set_peer_timeout(int fd, std::chrono::milliseconds timeout);
bool is_tcp(int fd);

// "10.0.0.2:41234", for messages; "unknown" when the connection has gone.
std::string peer_name(int fd);
std::string peer_host(int fd);  // without the port
// The address of this end of a connection: how the other machine can name this one.
std::string local_host(int fd);
// The address of this machine that a connection to `address` would use. Sends nothing.
std::string local_host_towards(const HostPort& address);

}  // namespace lockstep
