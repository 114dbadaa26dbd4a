#include "lockstep/comm/native/control.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "lockstep/base/log.h"
#include "lockstep/base/net/record_stream.h"
#include "lockstep/base/net/unix_socket.h"
#include "lockstep/comm/unheard.h"

namespace lockstep {
namespace {

enum class FrameKind : std::uint32_t {
  kGoodbye,
  kPart,
  kFault,
  kStatus,
  kAnswer,
  kSignal,
  kMemory
};

constexpr auto kSendTimeout = std::chrono::milliseconds(500);
constexpr auto kReceiveTimeout = std::chrono::seconds(5);

}  // namespace

// Of fixed size: no length is read from a connection.
struct ControlPlane::Frame {
  FrameKind kind = FrameKind::kGoodbye;
  ErrorCode code = ErrorCode::kAborted;
  std::uint64_t tag = 0;
  std::uint64_t serial = 0;  // of memory, or of the question that a status asks
  std::uint64_t bytes = 0;
  std::int32_t rank_count = 0;
  std::array<std::int32_t, 33> ranks{};
  Fingerprint operation;  // of a status, or the last before a parting; its number alone answers
  std::array<char, 816> text{};
};

// A rank of another machine. The descriptor stays in its Link.
struct ControlPlane::Peer {
  explicit Peer(const Protection& protection) : writer(protection), reader(protection) {}
  RecordWriter writer;
  RecordReader reader;
  Frame frame;  // the one that is arriving
  std::size_t arrived = 0;
};

ControlPlane::ControlPlane(int rank, std::vector<Link> links)
    : rank_(rank), links_(std::move(links)), wake_(make_pipe()) {
  for (const Link& link : links_) {
    send_mutexes_.push_back(std::make_unique<std::mutex>());
    peers_.push_back(link.same_machine ? nullptr : std::make_unique<Peer>(link.protection));
  }
  listener_ = std::thread([this] { listen(); });
}

ControlPlane::~ControlPlane() {
  for (int to = 0; to < static_cast<int>(links_.size()); ++to) send(to, Frame{});
  wake_.write_end.reset();
  listener_.join();
}

void ControlPlane::send(int to, const Frame& frame, int fd) {
  const Link& link = links_[static_cast<std::size_t>(to)];
  if (!link.socket) return;
  const std::lock_guard lock(*send_mutexes_[static_cast<std::size_t>(to)]);
  try {
    if (const auto& peer = peers_[static_cast<std::size_t>(to)]) {
      return send_records(peer->writer, link.socket.get(), std::as_bytes(std::span(&frame, 1)),
                          deadline_in(kSendTimeout));
    }
    send_with_fds(link.socket.get(), std::as_bytes(std::span(&frame, 1)),
                  std::span(&fd, fd >= 0 ? 1u : 0u), deadline_in(kSendTimeout));
  } catch (const Error& error) {
    // The peer is gone or stuck; all ranks detect that on their own connection to it.
    log_debug("cannot send a message to rank {}: {}", to, error.what());
  }
}

void ControlPlane::send_fault(std::uint64_t tag, int to, const Error& error) {
  Frame frame;
  frame.kind = FrameKind::kFault;
  frame.code = error.code();
  frame.tag = tag;
  put_ranks(frame, error.ranks());
  const std::string_view text = error.what();
  std::copy_n(text.begin(), std::min(text.size(), frame.text.size() - 1), frame.text.begin());
  send(to, frame);
}

void ControlPlane::put_ranks(Frame& frame, std::span<const int> ranks) {
  const std::size_t count = std::min(ranks.size(), frame.ranks.size());
  frame.rank_count = static_cast<std::int32_t>(count);
  std::copy_n(ranks.begin(), count, frame.ranks.begin());
}

std::vector<int> ControlPlane::take_ranks(const Frame& frame) {
  const auto most = static_cast<std::int32_t>(frame.ranks.size());
  return {frame.ranks.begin(), frame.ranks.begin() + std::clamp(frame.rank_count, 0, most)};
}

void ControlPlane::send_status(std::uint64_t tag, int to, const Status& status) {
  Frame frame;
  frame.kind = FrameKind::kStatus;
  frame.tag = tag;
  frame.serial = status.question;
  frame.operation = status.operation;
  put_ranks(frame, status.awaited);
  send(to, frame);
}

void ControlPlane::send_signal(std::uint64_t tag, int to) {
  Frame frame;
  frame.kind = FrameKind::kSignal;
  frame.tag = tag;
  send(to, frame);
}

void ControlPlane::send_memory(std::uint64_t tag, std::uint64_t serial, int to, int fd,
                               std::size_t bytes) {
  Frame frame;
  frame.kind = FrameKind::kMemory;
  frame.tag = tag;
  frame.serial = serial;
  frame.bytes = bytes;
  send(to, frame, fd);
}

ControlPlane::Memory ControlPlane::await_memory(std::uint64_t tag, std::uint64_t serial, int from,
                                                Deadline deadline) {
  const auto key = std::make_tuple(tag, serial, from);
  std::unique_lock lock(mutex_);
  const auto fault_present = [&] {
    const auto found = inboxes_.find(tag);
    return found != inboxes_.end() && found->second->fault.present();
  };
  changed_.wait_until(lock, std::min(deadline, deadline_in(std::chrono::hours(24))), [&] {
    return memory_.contains(key) || dead_.contains(from) || left_.contains(from) || fault_present();
  });
  if (memory_.contains(key)) {
    Memory memory = std::move(memory_[key]);
    memory_.erase(key);
    return memory;
  }
  if (fault_present()) inboxes_[tag]->fault.throw_if_present();
  if (dead_.contains(from)) throw death_of(from, {});
  if (left_.contains(from)) {
    throw Error(ErrorCode::kPeerLost, fmt::format("rank {} has left", from), {from});
  }
  throw Error(ErrorCode::kTimeout, fmt::format("rank {} did not share its memory in time", from),
              {from});
}

void ControlPlane::enroll(std::uint64_t tag, std::shared_ptr<Inbox> inbox) {
  const std::lock_guard lock(mutex_);
  if (const auto early = early_faults_.find(tag); early != early_faults_.end()) {
    inbox->fault.report(early->second);
  }
  std::erase_if(early_signals_, [&](const auto& signal) {
    if (signal.first != tag) return false;
    inbox->add_signal(signal.second);
    return true;
  });
  for (int rank : dead_) inbox->fault.report(death_of(rank, inbox->members));
  if (abandoned_) inbox->fault.report(*abandoned_);
  inboxes_[tag] = std::move(inbox);
}

void ControlPlane::abandon(const Error& error) {
  const std::lock_guard lock(mutex_);
  abandoned_ = error;
  for (auto& [tag, inbox] : inboxes_) inbox->fault.report(error);
  changed_.notify_all();
}

void ControlPlane::withdraw(std::uint64_t tag, std::span<const int> far,
                            const History& operations) {
  Frame frame;
  frame.kind = FrameKind::kPart;
  frame.tag = tag;
  frame.operation = operations.last();
  for (int to : far) send(to, frame);
  const std::lock_guard lock(mutex_);
  const auto found = inboxes_.find(tag);
  if (found == inboxes_.end()) return;
  Inbox& inbox = *found->second;
  const auto me = std::find(inbox.members.begin(), inbox.members.end(), rank_);
  if (const auto differs =
          inbox.close(static_cast<int>(me - inbox.members.begin()), far, operations)) {
    report_unheard(*differs);
  }
  if (inbox.settled()) inboxes_.erase(found);
}

void ControlPlane::listen() {
  while (true) {
    std::vector<pollfd> polls = {{wake_.read_end.get(), POLLIN, 0}};
    std::vector<int> ranks = {-1};
    {
      const std::lock_guard lock(mutex_);
      for (int rank = 0; rank < static_cast<int>(links_.size()); ++rank) {
        const Link& link = links_[static_cast<std::size_t>(rank)];
        if (!link.socket || dead_.contains(rank) || left_.contains(rank)) continue;
        polls.push_back({link.socket.get(), POLLIN, 0});
        ranks.push_back(rank);
      }
    }
    if (::poll(polls.data(), polls.size(), -1) < 0) continue;
    // Reads all received messages before it declares a rank dead: a rank that reports another's
    // death and then ends itself must not be blamed.
    std::vector<int> ended;
    bool heard = false;
    for (std::size_t i = 1; i < polls.size(); ++i) {
      if (polls[i].revents == 0) continue;
      heard = true;
      if (!receive(ranks[i])) ended.push_back(ranks[i]);
    }
    for (int rank : ended) report_gone(rank);
    // Two ranks that part at the same time have both spoken before either stops to listen, so one
    // of them at least has the other's word waiting.
    if (polls[0].revents != 0 && !heard) return;
  }
}

bool ControlPlane::receive_records(int from) {
  Peer& peer = *peers_[static_cast<std::size_t>(from)];
  const int socket = links_[static_cast<std::size_t>(from)].socket.get();
  const auto bytes = std::as_writable_bytes(std::span(&peer.frame, 1));
  try {
    while (true) {
      const auto got = peer.reader.read(socket, bytes.subspan(peer.arrived));
      if (!got) return false;
      if (*got == 0) return true;
      peer.arrived += *got;
      if (peer.arrived < bytes.size()) continue;
      peer.arrived = 0;
      handle(from, peer.frame, UniqueFd());
    }
  } catch (const Error& error) {
    report_corruption(from, error);
    return false;
  }
}

void ControlPlane::report_corruption(int from, const Error& cause) {
  std::vector<std::tuple<std::uint64_t, std::vector<int>, Error>> reports;
  {
    const std::lock_guard lock(mutex_);
    dead_.insert(from);
    for (auto& [tag, inbox] : inboxes_) {
      const auto number = [&](int rank) {
        return std::find(inbox->members.begin(), inbox->members.end(), rank) -
               inbox->members.begin();
      };
      if (number(from) == std::ssize(inbox->members)) continue;
      const Error error(
          ErrorCode::kCorrupted,
          fmt::format("a control message from rank {} ({}) to rank {} is corrupted: {}; the "
                      "network or the memory of one of the machines is faulty",
                      number(from), links_[static_cast<std::size_t>(from)].who, number(rank_),
                      cause.what()),
          {static_cast<int>(number(from)), static_cast<int>(number(rank_))});
      if (inbox->fault.report(error)) reports.emplace_back(tag, inbox->members, error);
    }
    changed_.notify_all();
  }
  log_error("the control connection from rank {} carries corrupted data: {}", from, cause.what());
  for (const auto& [tag, members, error] : reports) {
    for (int member : members) {
      if (member != rank_) send_fault(tag, member, error);
    }
  }
}

bool ControlPlane::receive(int from) {
  if (peers_[static_cast<std::size_t>(from)] != nullptr) return receive_records(from);
  Frame frame;
  try {
    std::vector<UniqueFd> fds = receive_with_fds(
        links_[static_cast<std::size_t>(from)].socket.get(),
        std::as_writable_bytes(std::span(&frame, 1)), 1, deadline_in(kReceiveTimeout));
    handle(from, frame, fds.empty() ? UniqueFd() : std::move(fds.front()));
    return true;
  } catch (const Error& error) {
    log_debug("the connection to rank {} ended: {}", from, error.what());
    return false;
  }
}

void ControlPlane::handle(int from, const Frame& frame, UniqueFd fd) {
  std::unique_lock lock(mutex_);
  const auto found = inboxes_.find(frame.tag);
  std::optional<Frame> answer;
  switch (frame.kind) {
    case FrameKind::kGoodbye:
      left_.insert(from);
      break;
    case FrameKind::kPart:
      if (found == inboxes_.end()) break;
      if (const auto differs = found->second->part(from, frame.operation)) {
        report_unheard(*differs);
      }
      if (found->second->settled()) inboxes_.erase(found);
      break;
    case FrameKind::kFault: {
      const Error error(
          frame.code, std::string(frame.text.data(), strnlen(frame.text.data(), frame.text.size())),
          take_ranks(frame));
      if (found != inboxes_.end()) {
        found->second->fault.report(error);
      } else {
        early_faults_.emplace(frame.tag, error);
      }
      break;
    }
    case FrameKind::kStatus:
      if (found != inboxes_.end()) {
        found->second->put_status(from, {frame.operation, take_ranks(frame), frame.serial});
        if (frame.serial == 0) break;
        answer.emplace();
        answer->kind = FrameKind::kAnswer;
        answer->tag = frame.tag;
        answer->serial = frame.serial;
        answer->operation.sequence = found->second->started;
      }
      break;
    case FrameKind::kAnswer:
      if (found == inboxes_.end()) break;
      found->second->put_answer(from, frame.serial, frame.operation.sequence);
      break;
    case FrameKind::kSignal:
      if (found != inboxes_.end()) {
        found->second->add_signal(from);
      } else {
        early_signals_.emplace_back(frame.tag, from);
      }
      break;
    case FrameKind::kMemory:
      memory_[{frame.tag, frame.serial, from}] = {std::move(fd), frame.bytes};
      break;
  }
  changed_.notify_all();
  lock.unlock();
  if (answer) send(from, *answer);
}

Error ControlPlane::death_of(int rank, const std::vector<int>& members) const {
  const auto found = std::find(members.begin(), members.end(), rank);
  std::vector<int> named;
  if (found != members.end()) named.push_back(static_cast<int>(found - members.begin()));
  return Error(ErrorCode::kPeerLost,
               fmt::format("rank {} died ({}): its connection to rank {} ended without a goodbye",
                           rank, links_[static_cast<std::size_t>(rank)].who, rank_),
               named);
}

void ControlPlane::report_gone(int from) {
  const std::lock_guard lock(mutex_);
  if (left_.contains(from) || dead_.contains(from)) return;
  dead_.insert(from);
  for (auto& [tag, inbox] : inboxes_) inbox->fault.report(death_of(from, inbox->members));
  changed_.notify_all();
}

}  // namespace lockstep
