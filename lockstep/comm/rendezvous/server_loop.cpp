#include "lockstep/comm/rendezvous/server_loop.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

namespace lockstep::rendezvous {

ServerLoop::ServerLoop(const HostPort& listen, const Token& token, int size,
                       RendezvousOptions options)
    : options_(std::move(options)),
      listener_(listen_tcp(listen)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      // All ranks may come at once.
      strangers_(token, kContext, 0, kPolicy,
                 {.most = options_.most_strangers + static_cast<std::size_t>(size) - 1,
                  .timeout = options_.handshake_timeout},
                 [this](std::string_view peer, std::string_view why) { note_drop(peer, why); }),
      ranks_("rank", size, options_.least_ranks > 0 ? options_.least_ranks : size),
      nodes_("node", options_.nodes, options_.nodes) {
  if (!wake_) fail_errno("cannot make an eventfd", errno);
  // Signals are for the threads of the program that hosts us.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this] { serve(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ServerLoop::~ServerLoop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void ServerLoop::serve() {
  while (!stopping_) {
    wait(next_moment());
    strangers_.drop_late();
    settle_nodes();
    give_notice();
  }
  listener_.fd.reset();
  strangers_.clear();
  constexpr std::chrono::seconds kFarewell{1};
  for (const Deadline end = deadline_in(kFarewell); has_output() && !has_passed(end);) wait(end);
}

// Serves all that happens until something has happened or `until` has come.
void ServerLoop::wait(Deadline until) {
  std::vector<pollfd> entries{{wake_.get(), static_cast<short>(stopping_ ? 0 : POLLIN), 0}};
  entries.push_back({strangers_.accepts() ? listener_.fd.get() : -1, POLLIN, 0});
  std::vector<ClientId> ids;
  for (const auto& [id, client] : clients_) {
    const short events = client.has_output() ? POLLIN | POLLOUT : POLLIN;
    entries.push_back({client.fd(), events, 0});
    ids.push_back(id);
  }
  const std::size_t first_stranger = entries.size();
  strangers_.add_polls(entries);
  if (::poll(entries.data(), entries.size(), poll_milliseconds(until)) <= 0) return;
  if (entries[0].revents != 0) stopping_ = true;
  // Before accepting new connections, so that these do not displace one that has answered.
  for (auto& admitted : strangers_.serve(std::span(entries).subspan(first_stranger))) {
    admit(std::move(admitted));
  }
  if (entries[1].revents != 0) strangers_.accept_from(listener_.fd.get());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (entries[i + 2].revents != 0) serve_client(ids[i], entries[i + 2].revents);
  }
}

void ServerLoop::admit(Strangers::Admitted admitted) {
  try {
    set_nodelay(admitted.fd.get());
    set_peer_timeout(admitted.fd.get(), kPeerTimeout);
  } catch (const Error& error) {
    return note_drop(admitted.peer, error.what());  // it has left meanwhile
  }
  clients_.try_emplace(next_id_++, RecordStream(std::move(admitted.fd), admitted.protection),
                       std::move(admitted.peer));
}

Deadline ServerLoop::next_moment() const {
  const Deadline moment = std::min(strangers_.next_moment(), nodes_due_);
  return unmentioned_ > 0 ? std::min(moment, next_notice_) : moment;
}

bool ServerLoop::has_output() const {
  return std::ranges::any_of(clients_, [](const auto& c) { return c.second.has_output(); });
}

void ServerLoop::serve_client(ClientId id, short events) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Connection& client = found->second;
  try {
    bool present = true;
    if ((events & ~POLLOUT) != 0) present = client.read();
    while (auto frame = client.next_frame()) obey(id, *frame);
    if (present) present = client.write();
    if (!present) remove(id);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupted) {
      // The client shall know why it is dropped.
      refuse(id, Error(ErrorCode::kCorrupted,
                       fmt::format("data from {} to the rendezvous server is corrupted: {}; the "
                                   "network or the memory of one of the machines is faulty",
                                   client.peer(), error.what())));
      client.write();
    }
    drop(id, error.what());
  }
}

void ServerLoop::obey(ClientId id, const std::string& bytes) {
  FrameReader frame(bytes);
  switch (frame.kind()) {
    case Kind::kDeposit:
      return deposit(id, frame);
    case Kind::kAskMissing: {
      for (const auto& [node, returning] : returning_) {
        if (returning.client != id) continue;
        return clients_.at(id).push(FrameWriter(Kind::kMissing).numbers({node}).finish());
      }
      const Gatherings& group = nodes_.waits(id) ? nodes_ : ranks_;
      auto missing = group.missing(id);
      constexpr std::size_t kMostNamed = 1000;
      missing.resize(std::min(missing.size(), kMostNamed));
      return clients_.at(id).push(FrameWriter(Kind::kMissing).numbers(missing).finish());
    }
    case Kind::kTell: {
      const auto node = node_of_.find(id);
      if (node == node_of_.end()) break;
      return tell_nodes(FrameWriter(Kind::kTold)
                            .number(static_cast<std::uint32_t>(node->second))
                            .text(frame.text())
                            .finish());
    }
    default:
      break;
  }
  fail(ErrorCode::kProtocol, "it sent an unexpected message");
}

void ServerLoop::deposit(ClientId id, FrameReader& frame) {
  const std::uint32_t group_number = frame.number();
  const bool is_node = group_number == static_cast<std::uint32_t>(Group::kNodes);
  Deposit deposit;
  deposit.key = frame.text();
  deposit.member = frame.small_number();
  deposit.size = frame.small_number();
  deposit.blob = frame.text();
  frame.finish();
  try {
    if (is_node && !blobs_.empty()) return take_back(id, std::move(deposit));
    if (is_node) nodes_key_ = deposit.key;
    const auto gathered = (is_node ? nodes_ : ranks_).add(id, std::move(deposit));
    if (gathered) return deliver(*gathered, is_node);
    const bool waits = is_node && nodes_due_ == kNoDeadline && options_.least_nodes > 0;
    if (waits && nodes_.may_settle(nodes_key_, options_.least_nodes)) {
      nodes_due_ = deadline_in(options_.wait_for_nodes);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kProtocol) throw;
    refuse(id, error);
  }
}

void ServerLoop::deliver(const Gathered& gathered, bool is_node) {
  for (std::size_t i = 0; i < gathered.clients.size(); ++i) {
    const ClientId client = gathered.clients[i];
    clients_.at(client).push(gathered.reply);
    if (is_node) node_of_[client] = gathered.members[i];
  }
  if (!is_node) return;
  blobs_ = gathered.blobs;
  nodes_due_ = kNoDeadline;
}

void ServerLoop::settle_nodes() {
  if (!has_passed(nodes_due_)) return;
  nodes_due_ = kNoDeadline;
  if (const auto gathered = nodes_.settle(nodes_key_, options_.least_nodes)) {
    deliver(*gathered, true);
  }
}

// A launcher that died with its machine is known to be lost only after a while.
void ServerLoop::take_back(ClientId id, Deposit deposit) {
  nodes_.check(deposit);
  const auto [at, is_new] =
      returning_.try_emplace(deposit.member, Returning{id, std::move(deposit.blob)});
  if (!is_new) {
    fail(ErrorCode::kMismatch, "another process waits already to take the place of node {}",
         deposit.member);
  }
  welcome_back(at->first);
}

void ServerLoop::welcome_back(int node) {
  const auto found = returning_.find(node);
  const bool is_here =
      std::ranges::any_of(node_of_, [&](const auto& n) { return n.second == node; });
  if (found == returning_.end() || is_here) return;
  const auto [client, blob] = std::move(found->second);
  returning_.erase(found);
  blobs_[static_cast<std::size_t>(node)] = blob;
  for (std::size_t i = 0; i < blobs_.size(); ++i) {
    clients_.at(client).push(
        FrameWriter(Kind::kBlob).number(static_cast<std::uint32_t>(i)).text(blobs_[i]).finish());
  }
  tell_nodes(
      FrameWriter(Kind::kJoined).number(static_cast<std::uint32_t>(node)).text(blob).finish());
  node_of_[client] = node;
}

void ServerLoop::refuse(ClientId id, const Error& error) {
  clients_.at(id).push(FrameWriter(Kind::kRefused)
                           .number(static_cast<std::uint32_t>(error.code()))
                           .numbers(error.ranks())
                           .text(error.what())
                           .finish());
}

void ServerLoop::tell_nodes(const std::string& frame) {
  const auto shared = std::make_shared<const std::string>(frame);
  for (const auto& [id, node] : node_of_) clients_.at(id).push(shared);
}

void ServerLoop::remove(ClientId id) {
  clients_.erase(id);
  std::erase_if(returning_, [&](const auto& r) { return r.second.client == id; });
  if (options_.least_nodes > 0) {  // the job may begin without it, or it comes again
    nodes_.forget(id);
    if (!nodes_.may_settle(nodes_key_, options_.least_nodes)) nodes_due_ = kNoDeadline;
  }
  for (auto* group : {&ranks_, &nodes_}) {
    const auto broken = group->withdraw(id);
    if (!broken) continue;
    const Error error(
        ErrorCode::kPeerLost,
        fmt::format("{} {} left the rendezvous before all had arrived; check its output",
                    group == &ranks_ ? "rank" : "node", broken->member),
        {broken->member});
    for (const ClientId other : broken->others) refuse(other, error);
  }
  if (const auto node = node_of_.extract(id)) {
    tell_nodes(FrameWriter(Kind::kLeft).number(static_cast<std::uint32_t>(node.mapped())).finish());
    welcome_back(node.mapped());
  }
}

void ServerLoop::drop(ClientId id, std::string_view why) {
  note_drop(clients_.at(id).peer(), why);
  remove(id);
}

void ServerLoop::note_drop(std::string_view peer, std::string_view why) {
  last_drop_ = fmt::format("{}: {}", peer, why);
  ++unmentioned_;
  ++dropped_;
}

void ServerLoop::give_notice() {
  if (unmentioned_ == 0 || !has_passed(next_notice_)) return;
  const std::string text =
      fmt::format("the rendezvous server dropped {} connection{}; the last, {}", unmentioned_,
                  unmentioned_ == 1 ? "" : "s", last_drop_);
  unmentioned_ = 0;
  next_notice_ = deadline_in(options_.notice_every);
  if (options_.notice) {
    options_.notice(text);
  } else {
    fmt::print(stderr, "lockstep: {}\n", text);
  }
}

}  // namespace lockstep::rendezvous
