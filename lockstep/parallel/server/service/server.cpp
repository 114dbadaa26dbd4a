#include "lockstep/parallel/server/service/server.h"

#include <algorithm>

namespace lockstep::parallel {

Server::Server(const ServerOptions& options, const JobMap& map, int number,
               ServerConnections sockets, std::chrono::nanoseconds timeout,
               const std::optional<LinkEmulation>& link, Ops& ops, SliceWindow& window,
               bool needs_all_workers)
    : options_(options),
      map_(map),
      number_(number),
      timeout_(timeout),
      ops_(ops),
      window_(window),
      needs_all_workers_(needs_all_workers || options.consistency == Consistency::kBsp),
      loop_(*this, link),
      here_(static_cast<std::size_t>(map.workers), true) {
  window_.set_wake([this] { loop_.wake(); });
  for (int worker = 0; worker < map.workers; ++worker) {
    add(std::move(sockets.data[static_cast<std::size_t>(worker)]), Role::kData, worker, data_);
    if (number != 0) continue;
    add(std::move(sockets.control[static_cast<std::size_t>(worker)]), Role::kControl, worker,
        control_);
  }
  if (number != 0) {
    add(std::move(*sockets.servers.front()), Role::kServer, 0, servers_);
    return;
  }
  coordinator_ = std::make_unique<Coordinator>(options, map.workers, *this);
  servers_.push_back(-1);
  for (int server = 1; server < map.servers; ++server) {
    add(std::move(*sockets.servers[static_cast<std::size_t>(server)]), Role::kServer, server,
        servers_);
  }
}

void Server::add(SlicePipe pipe, Role role, int number, std::vector<int>& list) {
  list.push_back(loop_.add(std::move(pipe)));
  peers_.push_back({role, number, {}});
}

void Server::run() {
  try {
    while (std::ranges::count(here_, true) > 0) {
      const bool busy = slices_ && slices_->has_work();
      if (busy) slices_->work();
      Deadline until = busy ? Deadline() : leave_deadline();
      if (slices_) until = std::min(until, slices_->deadline(timeout_));
      if (coordinator_) {
        until = std::min({until, silence_deadline(), coordinator_->deadline(timeout_),
                          coordinator_->traces_deadline(timeout_)});
      }
      loop_.step(until);
      if (slices_) window_.serve(slices_->rounds());
      check_deadlines();
    }
    part_from_servers();
  } catch (const Error& error) {
    window_.close(error);  // before the others hear of it, and wait for what is here
    fail_run(error);
    throw;
  }
}

std::span<std::byte> Server::place(int connection, const Header& header) {
  Peer& peer = peers_[static_cast<std::size_t>(connection)];
  if (peer.role == Role::kData &&
      (header.kind == Kind::kPush || header.kind == Kind::kRows || header.kind == Kind::kState)) {
    return slices().place(peer.number, header);
  }
  if (header.bytes > kMostSmall) {
    fail(ErrorCode::kProtocol,
         "received a message '{}' of {} bytes from rank {}, which is not its size",
         name(header.kind), header.bytes, rank_of(peer));
  }
  peer.small.resize(header.bytes);
  return peer.small;
}

void Server::take(int connection, const Header& header, std::span<std::byte> payload) {
  const Peer& peer = peers_[static_cast<std::size_t>(connection)];
  if (header.kind == Kind::kGoodbye) {
    goodbye(peer, payload);
    if (!leaving_ || !loop_.has_more_to_send()) loop_.close(connection);
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
      if (peer.number == 0) heard_leader_ = std::chrono::steady_clock::now();
      if (header.kind == Kind::kAlive) return;
      return coordinator_->take(peer.number, header, payload);
    case Role::kServer:
      return take_server(peer.number, header, payload);
  }
}

SliceService& Server::slices() {
  if (!slices_)
    fail(ErrorCode::kProtocol, "a worker sent a slice before worker 0 sent the layout of slices");
  return *slices_;
}

void Server::take_data(int worker, const Header& header, std::span<std::byte> payload) {
  switch (header.kind) {
    case Kind::kLayout:
      if (worker != 0 || slices_) {
        fail(ErrorCode::kProtocol,
             "worker {} sent the layout of slices, which only worker 0 sends, and only once",
             worker);
      }
      slices_ = std::make_unique<SliceService>(options_, decode_layout(payload, map_.servers),
                                               number_, map_.workers, ops_, *this, &window_);
      for (const auto& [early, hash] : std::exchange(early_, {})) slices_->ready(early, hash);
      return;
    case Kind::kReady: {
      const std::string hash(Unpacker(payload).text());
      if (slices_) return slices_->ready(worker, hash);
      early_.emplace_back(worker, hash);
      return;
    }
    case Kind::kState:
      return slices().take_state(header);
    case Kind::kRequest:
      return slices().request(worker, header, payload);
    case Kind::kPush:
      check_nobody_left();
      return slices().push(worker, header);
    case Kind::kOwe:
      check_nobody_left();
      return slices().owe(worker, header, payload);
    case Kind::kRows:
      check_nobody_left();
      return slices().rows(worker, header, payload);
    case Kind::kZeros:
      check_nobody_left();
      return slices().zeros(worker, header);
    case Kind::kPull:
      return slices().pull(worker, header);
    case Kind::kCollect:
      return slices().collect(worker, header);
    default:
      fail(ErrorCode::kProtocol,
           "worker {} sent a server a message '{}', which workers do not send", worker,
           name(header.kind));
  }
}

void Server::take_server(int server, const Header& header, std::span<std::byte> payload) {
  if (header.kind == Kind::kSums && number_ == 0) {
    coordinator_->take_sums(server, header, payload, slices().layout());
  } else if (header.kind == Kind::kVerdict && number_ != 0) {
    slices().verdict(header);
  } else {
    fail(ErrorCode::kProtocol,
         "server {} sent a message '{}' to server {}, which servers do not send", server,
         name(header.kind), number_);
  }
}

void Server::to_worker(int worker, OutMessage message) {
  loop_.post(data_[static_cast<std::size_t>(worker)], std::move(message));
}

void Server::to_control(int worker, OutMessage message) {
  loop_.post(control_[static_cast<std::size_t>(worker)], std::move(message));
}

void Server::to_server(int server, OutMessage message) {
  if (server != number_) {
    loop_.post(servers_[static_cast<std::size_t>(number_ == 0 ? server : 0)], std::move(message));
  } else if (message.header.kind == Kind::kSums) {
    coordinator_->take_sums(server, message.header, message.payload, slices().layout());
  } else {
    slices().verdict(message.header);
  }
}

}  // namespace lockstep::parallel
