// Peers of a server that leave, die or hang, and how a run ends.
#include <algorithm>

#include "lockstep/base/log.h"
#include "lockstep/parallel/server/service/server.h"

namespace lockstep::parallel {
namespace {

constexpr auto kFarewell = std::chrono::seconds(2);  // for peers to receive the reason

}  // namespace

// Each side closes the connection after it has received the other's goodbye, so that no message is
// lost.
void Server::part_from_servers() {
  leaving_ = true;
  const auto is_joined = [&](int server) { return server >= 0 && loop_.is_open(server); };
  for (const int server : servers_) {
    if (!is_joined(server)) continue;
    loop_.post(server, small_message({.kind = Kind::kGoodbye}, encode_fault(nullptr)));
  }
  const Deadline farewell = deadline_in(kFarewell);
  while (std::ranges::any_of(servers_, is_joined) && !has_passed(farewell)) loop_.step(farewell);
}

int Server::rank_of(const Peer& peer) const {
  return peer.role == Role::kServer ? map_.rank_of_server(peer.number) : peer.number;
}

void Server::goodbye(const Peer& peer, std::span<const std::byte> payload) {
  if (const auto fault = decode_fault(payload)) throw *fault;
  if (peer.role == Role::kData) worker_left(peer.number, false);
}

void Server::lost(int connection) {
  const Peer& peer = peers_[static_cast<std::size_t>(connection)];
  const int rank = rank_of(peer);
  if (leaving_) return;
  if (peer.role == Role::kServer) {
    throw Error(
        ErrorCode::kPeerLost,
        fmt::format("lost the connection to parameter {}: its process died, or its node cannot be "
                    "reached. Start the run again to continue from its last checkpoint",
                    map_.server_text(peer.number)),
        {rank});
  }
  if (!here_[static_cast<std::size_t>(peer.number)]) return;
  if (needs_all_workers_ || peer.number == 0) {
    throw Error(
        ErrorCode::kPeerLost,
        fmt::format("lost the connection to worker {} (rank {}): its process died, or its node "
                    "cannot be reached. Start the run again to continue from its last checkpoint",
                    peer.number, rank),
        {rank});
  }
  worker_left(peer.number, true);
}

void Server::worker_left(int worker, bool died) {
  here_[static_cast<std::size_t>(worker)] = false;
  leaver_ = worker;
  if (worker == 0) over_since_ = std::chrono::steady_clock::now();
  loop_.close(data_[static_cast<std::size_t>(worker)]);
  if (number_ == 0) loop_.close(control_[static_cast<std::size_t>(worker)]);
  if (died && number_ == 0) {
    log_warn("lost worker {}; the other {} continue without it", worker,
             std::ranges::count(here_, true));
  }
  if (!coordinator_) return;
  if (options_.consistency != Consistency::kBsp) {
    coordinator_->without(worker);
  } else if (coordinator_->is_waiting()) {
    check_nobody_left();
  }
}

// With bsp nothing can be finished without all workers.
void Server::check_nobody_left() {
  if (!leaver_ || options_.consistency != Consistency::kBsp) return;
  throw Error(ErrorCode::kPeerLost,
              fmt::format("worker {} (rank {}) left the run before its end, and with "
                          "parallel.consistency = \"bsp\" the others cannot continue without it",
                          *leaver_, *leaver_),
              {*leaver_});
}

Deadline Server::leave_deadline() const {
  return over_since_ == kNoDeadline ? kNoDeadline : over_since_ + timeout_;
}

// Others say themselves that they miss worker 0, as long as there are any.
Deadline Server::silence_deadline() const {
  const bool only_leader = here_[0] && std::ranges::count(here_, true) == 1 && here_.size() > 1;
  const bool applies = number_ == 0 && only_leader && options_.consistency != Consistency::kBsp;
  return applies ? heard_leader_ + timeout_ : kNoDeadline;
}

void Server::check_deadlines() {
  if (has_passed(leave_deadline())) {
    std::vector<int> late;
    for (int worker = 0; worker < map_.workers; ++worker) {
      if (here_[static_cast<std::size_t>(worker)]) late.push_back(worker);
    }
    if (!late.empty()) fail_late(late, "goodbye");
  }
  if (slices_ && has_passed(slices_->deadline(timeout_))) {
    if (const std::vector<int> late = slices_->missing(); !late.empty()) {
      fail_late(late, "gradients of a step");
    }
    slices_->restart_wait();  // for other servers, which will say if they miss a worker
  }
  if (has_passed(silence_deadline())) fail_late({0}, "heartbeat");
  if (!coordinator_) return;
  if (has_passed(coordinator_->traces_deadline(timeout_))) coordinator_->end_traces();
  if (has_passed(coordinator_->deadline(timeout_))) {
    fail_late(coordinator_->missing(), "report of a step");
  }
}

void Server::fail_late(std::vector<int> workers, std::string_view what) const {
  std::string named;
  for (const int worker : workers) named += fmt::format(" {}", worker);
  throw Error(
      ErrorCode::kTimeout,
      fmt::format(
          "received no {} from worker{} within {:g} s (comm.timeout), while other workers wait",
          what, named, std::chrono::duration<double>(timeout_).count()),
      std::move(workers));
}

void Server::fail_run(const Error& error) {
  const std::string text = encode_fault(&error);
  for (int connection = 0; connection < static_cast<int>(peers_.size()); ++connection) {
    if (loop_.is_open(connection))
      loop_.post(connection, small_message({.kind = Kind::kFailed}, text));
  }
  loop_.finish(deadline_in(kFarewell));
}

}  // namespace lockstep::parallel
