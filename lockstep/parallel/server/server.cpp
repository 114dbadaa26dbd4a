#include "lockstep/parallel/server/server.h"

#include <algorithm>

#include "lockstep/base/log.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kMostSmall = std::size_t{64} << 20;  // bytes of a payload without a place
constexpr auto kFarewell = std::chrono::seconds(2);        // for peers to hear why the run ends

}  // namespace

Server::Server(const ServerOptions& options, const JobMap& map, int number, ServerSockets sockets,
               std::chrono::nanoseconds timeout, const std::optional<LinkEmulation>& link, Ops& ops)
    : options_(options),
      map_(map),
      number_(number),
      timeout_(timeout),
      ops_(ops),
      hub_(*this, link),
      here_(static_cast<std::size_t>(map.workers), true) {
  for (int worker = 0; worker < map.workers; ++worker) {
    add(std::move(sockets.data[static_cast<std::size_t>(worker)]), Role::kData, worker, data_);
    if (number != 0) continue;
    add(std::move(sockets.control[static_cast<std::size_t>(worker)]), Role::kControl, worker,
        control_);
  }
  if (number != 0) {
    add(std::move(sockets.servers.front()), Role::kServer, 0, servers_);
    return;
  }
  coordinator_ = std::make_unique<Coordinator>(options, map.workers, *this);
  servers_.push_back(-1);
  for (int server = 1; server < map.servers; ++server) {
    add(std::move(sockets.servers[static_cast<std::size_t>(server)]), Role::kServer, server,
        servers_);
  }
}

void Server::add(UniqueFd socket, Role role, int number, std::vector<int>& list) {
  list.push_back(hub_.add(std::move(socket)));
  peers_.push_back({role, number, {}});
}

void Server::run() {
  try {
    while (std::ranges::count(here_, true) > 0) {
      const bool busy = pieces_ && pieces_->has_work();
      if (busy) pieces_->work();
      Deadline until = busy ? Deadline() : kNoDeadline;
      if (pieces_) until = std::min(until, pieces_->deadline(timeout_));
      if (coordinator_) until = std::min(until, coordinator_->deadline(timeout_));
      hub_.step(until);
      check_patience();
    }
    part_from_servers();
  } catch (const Error& error) {
    fail_run(error);
    throw;
  }
}

// Each closes the connection when it has heard the other's goodbye, so that none is lost in it.
void Server::part_from_servers() {
  leaving_ = true;
  const auto is_joined = [&](int server) { return server >= 0 && hub_.is_open(server); };
  for (const int server : servers_) {
    if (!is_joined(server)) continue;
    hub_.post(server, small_message({.kind = Kind::kGoodbye}, encode_fault(nullptr)));
  }
  const Deadline farewell = deadline_in(kFarewell);
  while (std::ranges::any_of(servers_, is_joined) && !has_passed(farewell)) hub_.step(farewell);
}

// ---- messages

std::span<std::byte> Server::place(int connection, const Header& header) {
  Peer& peer = peers_[static_cast<std::size_t>(connection)];
  if (peer.role == Role::kData && (header.kind == Kind::kPush || header.kind == Kind::kState)) {
    return pieces().place(peer.number, header);
  }
  if (header.bytes > kMostSmall) {
    fail(ErrorCode::kProtocol, "a '{}' of {} bytes came from rank {}", name(header.kind),
         header.bytes, rank_of(peer));
  }
  peer.small.resize(header.bytes);
  return peer.small;
}

void Server::take(int connection, const Header& header, std::span<std::byte> payload) {
  const Peer& peer = peers_[static_cast<std::size_t>(connection)];
  if (header.kind == Kind::kGoodbye) {
    goodbye(peer, payload);
    if (!leaving_ || !hub_.has_more_to_send()) hub_.close(connection);
    return;
  }
  if (header.kind == Kind::kFailed) {
    if (const auto fault = decode_fault(payload)) throw *fault;
    return;
  }
  switch (peer.role) {
    case Role::kData:
      return take_data(peer.number, header, payload);
    case Role::kControl:
      check_nobody_left();
      return coordinator_->take(peer.number, header, payload);
    case Role::kServer:
      return take_server(peer.number, header, payload);
  }
}

PieceService& Server::pieces() {
  if (!pieces_) fail(ErrorCode::kProtocol, "a worker sent a piece before worker 0 told of them");
  return *pieces_;
}

void Server::take_data(int worker, const Header& header, std::span<std::byte> payload) {
  switch (header.kind) {
    case Kind::kLayout:
      if (worker != 0 || pieces_) {
        fail(ErrorCode::kProtocol, "worker {} told of pieces out of turn", worker);
      }
      pieces_ = std::make_unique<PieceService>(options_, decode_layout(payload, map_.servers),
                                               number_, map_.workers, ops_, *this);
      for (const auto& [early, hash] : std::exchange(early_, {})) pieces_->ready(early, hash);
      return;
    case Kind::kReady: {
      const std::string hash(Unpacker(payload).text());
      if (pieces_) return pieces_->ready(worker, hash);
      early_.emplace_back(worker, hash);
      return;
    }
    case Kind::kState:
      return pieces().take_state(header);
    case Kind::kRequest:
      return pieces().request(worker, header, payload);
    case Kind::kPush:
      check_nobody_left();
      return pieces().push(worker, header);
    case Kind::kZeros:
      check_nobody_left();
      return pieces().zeros(worker, header);
    case Kind::kPull:
      return pieces().pull(worker, header);
    case Kind::kCollect:
      return pieces().collect(worker, header);
    default:
      fail(ErrorCode::kProtocol, "worker {} sent a '{}' to a server", worker, name(header.kind));
  }
}

void Server::take_server(int server, const Header& header, std::span<std::byte> payload) {
  if (header.kind == Kind::kSums && number_ == 0) {
    coordinator_->take_sums(server, header, payload, pieces().layout());
  } else if (header.kind == Kind::kVerdict && number_ != 0) {
    pieces().verdict(header);
  } else {
    fail(ErrorCode::kProtocol, "server {} sent a '{}' to server {}", server, name(header.kind),
         number_);
  }
}

void Server::to_worker(int worker, OutMessage message) {
  hub_.post(data_[static_cast<std::size_t>(worker)], std::move(message));
}

void Server::to_control(int worker, OutMessage message) {
  hub_.post(control_[static_cast<std::size_t>(worker)], std::move(message));
}

void Server::to_server(int server, OutMessage message) {
  if (server != number_) {
    hub_.post(servers_[static_cast<std::size_t>(number_ == 0 ? server : 0)], std::move(message));
  } else if (message.header.kind == Kind::kSums) {
    coordinator_->take_sums(server, message.header, message.payload, pieces().layout());
  } else {
    pieces().verdict(message.header);
  }
}

// ---- those who leave

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
    throw Error(ErrorCode::kPeerLost,
                fmt::format("parameter {} is gone: its process died, or its machine cannot be "
                            "reached; the run can go on from its last checkpoint",
                            map_.server_text(peer.number)),
                {rank});
  }
  if (!here_[static_cast<std::size_t>(peer.number)]) return;
  if (options_.consistency == Consistency::kBsp || peer.number == 0) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("worker {} (rank {}) is gone: its process died, or its machine cannot "
                            "be reached; the run can go on from its last checkpoint",
                            peer.number, rank),
                {rank});
  }
  worker_left(peer.number, true);
}

void Server::worker_left(int worker, bool died) {
  here_[static_cast<std::size_t>(worker)] = false;
  leaver_ = worker;
  hub_.close(data_[static_cast<std::size_t>(worker)]);
  if (number_ == 0) hub_.close(control_[static_cast<std::size_t>(worker)]);
  if (died && number_ == 0) {
    log_warn("worker {} is gone; the other {} go on without it", worker,
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
              fmt::format("worker {} (rank {}) has left the run, which the others go on with",
                          *leaver_, *leaver_),
              {*leaver_});
}

void Server::check_patience() {
  if (pieces_ && has_passed(pieces_->deadline(timeout_))) {
    if (const std::vector<int> late = pieces_->missing(); !late.empty()) {
      fail_late(late, "gradients");
    }
    pieces_->wait_anew();  // for other servers, which will say if they miss a worker
  }
  if (coordinator_ && has_passed(coordinator_->deadline(timeout_))) {
    fail_late(coordinator_->missing(), "word");
  }
}

void Server::fail_late(std::vector<int> workers, std::string_view what) const {
  std::string named;
  for (const int worker : workers) named += fmt::format(" {}", worker);
  throw Error(ErrorCode::kTimeout,
              fmt::format("no {} of a step came from worker{} within {:g} s (comm.timeout), while "
                          "others wait",
                          what, named, std::chrono::duration<double>(timeout_).count()),
              std::move(workers));
}

void Server::fail_run(const Error& error) {
  const std::string text = encode_fault(&error);
  for (int connection = 0; connection < static_cast<int>(peers_.size()); ++connection) {
    if (hub_.is_open(connection))
      hub_.post(connection, small_message({.kind = Kind::kFailed}, text));
  }
  hub_.finish(deadline_in(kFarewell));
}

}  // namespace lockstep::parallel
