// Connects the workers and servers of a job: exchanges addresses and a token through a
// communicator, and uses separate pipes for everything else, because a communicator is unusable
// once a rank has died. Workers and servers on the same node use rings, unless comm.transport is
// tcp at the server.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/net/host_port.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/native/acceptor.h"
#include "lockstep/comm/options.h"
#include "lockstep/parallel/server/wire/pipe.h"
#include "lockstep/parallel/strategy/server_options.h"

namespace lockstep::parallel {

// The roles and addresses of all ranks.
struct JobMap {
  int rank = 0;
  int ranks = 1;
  int workers = 1;
  int servers = 1;
  ServerPlacement placement = ServerPlacement::kColocated;
  Token token;
  std::vector<HostPort> addresses;       // of servers
  std::vector<std::string> local_names;  // of servers, for workers on the same node; or empty

  int rank_of_server(int server) const {
    return placement == ServerPlacement::kColocated ? server : workers + server;
  }
  // For errors: "server 1 (rank 3)".
  std::string server_text(int server) const;
};

// The connections of a worker; those of a server.
struct WorkerConnections {
  std::vector<SlicePipe> data;       // by server
  std::optional<SlicePipe> control;  // to server 0
};
struct ServerConnections {
  std::vector<SlicePipe> data;     // by worker
  std::vector<SlicePipe> control;  // by worker; of server 0 only
  std::vector<std::optional<SlicePipe>>
      servers;  // on server 0: by server, none for itself; else the one to server 0
};

class Meeting {
 public:
  // Called by all ranks of the world together. Starts the acceptor of this rank's server, if it has
  // one. `host` is the address of this rank for others. Throws Error(kMismatch) for ranks with
  // other settings.
  Meeting(const ServerOptions& options, Communicator& world, const CommOptions& comm,
          const std::string& host);

  const JobMap& map() const { return map_; }
  // The number of this rank's server, if it has one.
  std::optional<int> server() const { return server_; }

  // Both wait for the peers; a worker and its colocated server call them on separate threads.
  WorkerConnections connect_worker() const;
  ServerConnections connect_server();

 private:
  SlicePipe reach(int server, Purpose purpose) const;
  // Over a connection with a rank.
  SlicePipe pipe_to(int rank, UniqueFd socket, const Protection& protection) const;
  SlicePipe reach_data(int server) const;
  SlicePipe await_data(int worker, Deadline deadline);
  template <class Connect>
  auto reached(int server, Connect connect) const;

  JobMap map_;
  std::optional<int> server_;
  std::chrono::nanoseconds timeout_;
  EncryptionPolicy policy_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace lockstep::parallel
