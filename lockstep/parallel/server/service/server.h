// One parameter server: the event loop of its thread.
//
// It serves until all workers have said goodbye. A worker that dies ends the run in bsp, and in asp
// and ssp if it is worker 0, which saves the checkpoints, or if all are needed; otherwise the
// others continue without it. After worker 0 has left, the others must leave within the timeout;
// while only worker 0 is left, it must send heartbeats within the timeout. The error that ends the
// run is sent to all remaining peers, and run() throws it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/server/service/coordinator.h"
#include "lockstep/parallel/server/service/slice_service.h"
#include "lockstep/parallel/server/wire/connection_loop.h"
#include "lockstep/parallel/server/wire/meeting.h"

namespace lockstep::parallel {

class Server final : public ConnectionLoop::Receiver, public ServerWire {
 public:
  Server(const ServerOptions& options, const JobMap& map, int number, ServerConnections sockets,
         std::chrono::nanoseconds timeout, const std::optional<LinkEmulation>& link, Ops& ops,
         SliceWindow& window, bool needs_all_workers);
  ~Server() override { window_.set_wake({}); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void run();

 private:
  enum class Role : std::uint8_t { kData, kControl, kServer };
  struct Peer {
    Role role;
    int number;                    // of the worker or server
    std::vector<std::byte> small;  // small payloads
  };

  std::span<std::byte> place(int connection, const Header& header) override;
  void take(int connection, const Header& header, std::span<std::byte> payload) override;
  void lost(int connection) override;

  void to_worker(int worker, OutMessage message) override;
  void to_control(int worker, OutMessage message) override;
  void to_server(int server, OutMessage message) override;

  void part_from_servers();
  void add(SlicePipe pipe, Role role, int number, std::vector<int>& list);
  void take_data(int worker, const Header& header, std::span<std::byte> payload);
  void take_server(int server, const Header& header, std::span<std::byte> payload);
  void goodbye(const Peer& peer, std::span<const std::byte> payload);
  void worker_left(int worker, bool died);
  void check_nobody_left();
  void check_deadlines();
  Deadline leave_deadline() const;
  Deadline silence_deadline() const;
  SliceService& slices();
  [[noreturn]] void fail_late(std::vector<int> workers, std::string_view what) const;
  void fail_run(const Error& error);
  int rank_of(const Peer& peer) const;

  const ServerOptions& options_;
  const JobMap& map_;
  int number_;
  std::chrono::nanoseconds timeout_;
  Ops& ops_;
  SliceWindow& window_;
  bool needs_all_workers_;
  ConnectionLoop loop_;
  std::vector<Peer> peers_;    // by connection
  std::vector<int> data_;      // connections by worker
  std::vector<int> control_;   // the same
  std::vector<int> servers_;   // connections by server: on server 0 to all others, else to server 0
  std::vector<bool> here_;     // the workers that take part
  std::optional<int> leaver_;  // a worker that has left
  Deadline over_since_ = kNoDeadline;               // since worker 0 has left
  Deadline heard_leader_ = Deadline::clock::now();  // the last message of worker 0 to server 0
  bool leaving_ = false;                            // all workers have left
  // Workers that were ready before worker 0 sent the layout.
  std::vector<std::pair<int, std::string>> early_;
  std::unique_ptr<SliceService> slices_;
  std::unique_ptr<Coordinator> coordinator_;  // of server 0
};

}  // namespace lockstep::parallel
