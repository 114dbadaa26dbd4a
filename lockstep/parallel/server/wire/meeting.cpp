#include "lockstep/parallel/server/wire/meeting.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/net/unix_socket.h"
#include "lockstep/base/text/text.h"

namespace lockstep::parallel {
namespace {

constexpr std::uint64_t kServerTag = 0x7061726d73727672;  // no communicator's
constexpr std::size_t kContactBytes = 512;

// The token that ranks know already; ranks that are threads make one up, which never leaves their
// process.
Token common_token(Communicator& world) {
  if (world.backend() != "threads") return find_token();
  Token token = world.rank() == 0 ? mint_token() : Token{};
  world.broadcast(Data(token.bytes.data(), token.bytes.size(), DType::kU8), 0);
  return token;
}

std::vector<std::string> exchange_contacts(Communicator& world, const std::string& mine) {
  if (mine.size() >= kContactBytes) {
    fail(ErrorCode::kInvalidArgument, "'{}' is too long for an address and settings", mine);
  }
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::uint8_t> contact(kContactBytes);
  std::vector<std::uint8_t> all(kContactBytes * ranks);
  std::memcpy(contact.data(), mine.data(), mine.size());
  world.all_gather(contact, all);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto* text = reinterpret_cast<const char*>(all.data() + rank * kContactBytes);
    texts.emplace_back(text, ::strnlen(text, kContactBytes));
  }
  return texts;
}

}  // namespace

std::string JobMap::server_text(int server) const {
  return fmt::format("server {} (rank {})", server, rank_of_server(server));
}

Meeting::Meeting(const ServerOptions& options, Communicator& world, const CommOptions& comm,
                 const std::string& host)
    : timeout_(comm.timeout), policy_(comm.encryption()) {
  map_.rank = world.rank();
  map_.ranks = world.size();
  map_.workers = worker_count(options, world.size());
  map_.servers = options.servers;
  map_.placement = options.placement;
  for (int server = 0; server < options.servers; ++server) {
    if (map_.rank_of_server(server) == map_.rank) server_ = server;
  }
  map_.token = common_token(world);
  std::string address = "-";
  std::string local_name = "-";
  if (server_) {
    Listener listener = listen_tcp({host, 0});
    address = format_host_port(listener.address);
    acceptor_ = std::make_unique<Acceptor>(map_.token, 2 * map_.ranks, policy_);
    acceptor_->open(std::move(listener.fd), false);
    if (comm.transport != TransportChoice::kTcp) {
      local_name = random_unix_name();
      acceptor_->open(listen_unix_abstract(local_name), true);
    }
  }
  const std::string settings =
      fmt::format("{}; comm.emulate '{}'", describe(options), comm.emulate);
  const std::vector<std::string> contacts =
      exchange_contacts(world, fmt::format("{}\n{}\n{}", address, local_name, settings));
  map_.addresses.resize(static_cast<std::size_t>(map_.servers));
  map_.local_names.resize(static_cast<std::size_t>(map_.servers));
  for (int rank = 0; rank < map_.ranks; ++rank) {
    const std::vector<std::string_view> lines =
        split_text(contacts[static_cast<std::size_t>(rank)], '\n');
    if (lines.size() != 3 || lines[2] != settings) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("rank {} has other settings of parameter servers ({}) than rank {} "
                              "({}); all ranks need the same",
                              rank, lines.back(), map_.rank, settings),
                  {rank});
    }
    for (int server = 0; server < map_.servers; ++server) {
      if (map_.rank_of_server(server) != rank) continue;
      map_.addresses[static_cast<std::size_t>(server)] = parse_host_port(lines[0]);
      if (lines[1] != "-") map_.local_names[static_cast<std::size_t>(server)] = lines[1];
    }
  }
}

// What `connect` gives; its errors name the server.
template <class Connect>
auto Meeting::reached(int server, Connect connect) const {
  try {
    return connect();
  } catch (const Error& error) {
    const HostPort& address = map_.addresses[static_cast<std::size_t>(server)];
    throw Error(error.code(),
                fmt::format("rank {} cannot connect to {} at {}: {}{}", map_.rank,
                            map_.server_text(server), format_host_port(address), error.what(),
                            is_loopback(address.host)
                                ? "; where ranks are on several nodes, comm.interface must name an "
                                  "address that all can reach"
                                : ""),
                {map_.rank_of_server(server)});
  }
}

SlicePipe Meeting::pipe_to(int rank, UniqueFd socket, const Protection& protection) const {
  return SlicePipe(std::move(socket), protection,
                   fmt::format("rank {} and rank {}", rank, map_.rank), {rank, map_.rank});
}

SlicePipe Meeting::reach(int server, Purpose purpose) const {
  const HostPort& address = map_.addresses[static_cast<std::size_t>(server)];
  const Deadline deadline = deadline_in(timeout_);
  ProvenSocket proven = reached(server, [&] {
    return connect_as(
        {kServerTag, map_.rank, purpose}, [&] { return connect_tcp(address, deadline); },
        map_.token, deadline, policy_);
  });
  return pipe_to(map_.rank_of_server(server), std::move(proven.socket), proven.protection);
}

SlicePipe Meeting::reach_data(int server) const {
  constexpr Purpose kData = Purpose::kPointToPoint;
  const std::string& local_name = map_.local_names[static_cast<std::size_t>(server)];
  const Deadline deadline = deadline_in(timeout_);
  bool listens_here = false;
  const auto connect = [&] {
    UniqueFd socket = connect_unix_abstract(local_name, deadline);
    listens_here = true;
    return socket;
  };
  try {
    if (!local_name.empty()) {
      return reached(server, [&] {
        return SlicePipe::make_rings(
            connect_as({kServerTag, map_.rank, kData}, connect, map_.token, deadline).socket,
            deadline);
      });
    }
  } catch (const Error& error) {
    if (listens_here || error.code() != ErrorCode::kPeerLost) throw;  // else on another node
  }
  return reach(server, kData);
}

SlicePipe Meeting::await_data(int worker, Deadline deadline) {
  Visitor visitor = acceptor_->await({kServerTag, worker, Purpose::kPointToPoint}, deadline);
  if (!visitor.same_machine) {
    return pipe_to(worker, std::move(visitor.socket), visitor.protection);
  }
  try {
    return SlicePipe::take_rings(std::move(visitor.socket), deadline);
  } catch (const Error& error) {
    throw Error(
        error.code(),
        fmt::format("worker {} did not share the memory for its slices: {}", worker, error.what()),
        {worker});
  }
}

WorkerConnections Meeting::connect_worker() const {
  WorkerConnections sockets;
  for (int server = 0; server < map_.servers; ++server) sockets.data.push_back(reach_data(server));
  sockets.control = reach(0, Purpose::kControl);
  return sockets;
}

ServerConnections Meeting::connect_server() {
  ServerConnections sockets;
  const Deadline deadline = deadline_in(timeout_);
  const auto await = [&](int rank, Purpose purpose) {
    Visitor visitor = acceptor_->await({kServerTag, rank, purpose}, deadline);
    return pipe_to(rank, std::move(visitor.socket), visitor.protection);
  };
  if (*server_ != 0) sockets.servers.push_back(reach(0, Purpose::kCollective));
  for (int worker = 0; worker < map_.workers; ++worker) {
    sockets.data.push_back(await_data(worker, deadline));
    if (*server_ == 0) sockets.control.push_back(await(worker, Purpose::kControl));
  }
  for (int server = 0; *server_ == 0 && server < map_.servers; ++server) {
    sockets.servers.emplace_back();
    if (server > 0) {
      sockets.servers.back() = await(map_.rank_of_server(server), Purpose::kCollective);
    }
  }
  acceptor_.reset();
  return sockets;
}

}  // namespace lockstep::parallel
