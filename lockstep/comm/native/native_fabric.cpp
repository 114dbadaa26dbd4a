#include "lockstep/comm/native/native_fabric.h"

#include <unistd.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "lockstep/base/log.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/net/unix_socket.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/text.h"
#include "lockstep/comm/native/acceptor.h"
#include "lockstep/comm/native/control.h"
#include "lockstep/comm/native/memory.h"
#include "lockstep/comm/transport/tcp_channel.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kControlTag = 0;

// How a rank can be reached; travels as lines of text.
struct Contact {
  HostPort tcp;
  std::string local_name;
  std::string who;

  std::string text() const {
    return fmt::format("{}\n{}\n{}", format_host_port(tcp), local_name, who);
  }
  static Contact parse(const std::string& text, int rank) {
    const std::vector<std::string_view> lines = split_text(text, '\n');
    if (lines.size() != 3) {
      fail(ErrorCode::kProtocol, "rank {} sent a description of {} lines instead of 3", rank,
           lines.size());
    }
    return {parse_host_port(lines[0]), std::string(lines[1]), std::string(lines[2])};
  }
};

// What a rank reports about its node: the lowest rank on it, its name, the CPUs that the rank may
// use.
struct MachineInfo {
  std::string leader;
  std::string machine;
  CpuSet cpus;

  std::string text() const { return fmt::format("{}\n{}\n{}", leader, machine, cpus.text()); }
  static MachineInfo parse(const std::string& text) {
    std::vector<std::string_view> lines = split_text(text, '\n');
    lines.resize(3);
    return {std::string(lines[0]), std::string(lines[1]), CpuSet::parse(lines[2])};
  }
};

std::string host_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

class NativeFabric final : public Fabric {
 public:
  NativeFabric(const NativeWorld& world, const CommOptions& options)
      : rank_(world.rank),
        size_(world.size),
        token_(world.token),
        listen_host_(world.listen_host),
        always_invites_(options.transport == TransportChoice::kTcp),
        policy_(options.encryption()),
        timeout_(options.timeout),
        stop_(world.stop) {
    if (size_ > 1) {
      connect_control(world);
      abandon_.emplace(stop_, [this] {
        control_->abandon(Error(ErrorCode::kAborted, "the launcher has lost other ranks"));
      });
      find_machines(world);
    } else {
      machines_ = {0};
      cpus_ = {CpuSet::of_this_thread()};
    }
  }

  std::string_view backend() const override { return "native"; }
  int rank() const override { return rank_; }
  const std::vector<int>& machines() const override { return machines_; }
  std::string network() const override { return network_; }
  CpuSet cpus(int rank) const override { return cpus_[static_cast<std::size_t>(rank)]; }

  SharedMemory share(std::uint64_t tag, std::span<const int> ranks, std::size_t bytes) override {
    constexpr std::uint64_t kSegment = 0;  // exchanges count from 1
    if (ranks.size() == 1) return map_private(bytes);
    if (const int leader = *std::min_element(ranks.begin(), ranks.end()); leader != rank_) {
      return await_mapping(tag, kSegment, leader, bytes);
    }
    const UniqueFd file = make_memory_file(bytes);
    for (int rank : ranks) {
      if (rank != rank_) control_->send_memory(tag, kSegment, rank, file.get(), bytes);
    }
    return map_file(file.get(), bytes);
  }

  std::vector<SharedMemory> exchange(std::uint64_t tag, std::uint64_t serial,
                                     std::span<const int> ranks, std::size_t bytes) override {
    if (ranks.size() == 1) return {map_private(bytes)};
    const UniqueFd file = make_memory_file(bytes);
    for (int rank : ranks) {
      if (rank != rank_) control_->send_memory(tag, serial, rank, file.get(), bytes);
    }
    std::vector<SharedMemory> memory;
    for (int rank : ranks) {
      memory.push_back(rank == rank_ ? map_file(file.get(), bytes)
                                     : await_mapping(tag, serial, rank, bytes));
    }
    return memory;
  }

  std::string invite(std::uint64_t tag) override {
    const bool one_machine = std::all_of(machines_.begin(), machines_.end(),
                                         [&](int machine) { return machine == machines_[0]; });
    if (size_ == 1 || (one_machine && !always_invites_)) return {};
    Listener listener = listen_tcp({listen_host_, 0});
    const std::string address = format_host_port(listener.address);
    acceptors_[tag] = std::make_unique<Acceptor>(token_, 2 * size_, policy_);
    acceptors_[tag]->open(std::move(listener.fd), false);
    return address;
  }

  std::map<int, Channels> connect(std::uint64_t tag, std::span<const int> peers,
                                  const std::map<int, std::string>& invitations) override {
    const Deadline deadline = deadline_in(timeout_);
    std::map<int, Channels> channels;
    for (int peer : peers) {
      const auto open = [&](Purpose purpose) {
        ProvenSocket proven = meet(tag, peer, purpose, invitations.at(peer), deadline);
        return std::make_unique<transport::TcpChannel>(std::move(proven.socket), peer,
                                                       proven.protection);
      };
      channels[peer].collective = open(Purpose::kCollective);
      channels[peer].point_to_point = open(Purpose::kPointToPoint);
    }
    acceptors_.erase(tag);
    return channels;
  }

  void enroll(std::uint64_t tag, std::shared_ptr<Inbox> inbox) override {
    if (control_) control_->enroll(tag, std::move(inbox));
  }
  void withdraw(std::uint64_t tag, std::span<const int> far, const History& operations) override {
    if (control_) control_->withdraw(tag, far, operations);
  }
  void spread(std::uint64_t tag, std::span<const int> members, const Error& error) override {
    for (int member : members) {
      if (member != rank_) control_->send_fault(tag, member, error);
    }
  }
  void spread(std::uint64_t tag, std::span<const int> members, const Status& status) override {
    for (int member : members) {
      if (member != rank_) control_->send_status(tag, member, status);
    }
  }
  void signal(std::uint64_t tag, int peer) override { control_->send_signal(tag, peer); }

 private:
  // What `connect` returns; its errors name both ranks.
  template <class Connect>
  auto reached(int peer, Connect connect) const {
    try {
      return connect();
    } catch (const Error& error) {
      throw Error(error.code(),
                  fmt::format("rank {} cannot connect to rank {}: {}", rank_, peer, error.what()),
                  {peer});
    }
  }

  // Of two ranks the higher one connects to the lower one.
  ProvenSocket meet(std::uint64_t tag, int peer, Purpose purpose, const std::string& address,
                    Deadline deadline) {
    if (peer > rank_) {
      Visitor visitor = acceptors_.at(tag)->await({tag, peer, purpose}, deadline, stop_);
      return {std::move(visitor.socket), visitor.protection};
    }
    const HostPort target = parse_host_port(address);
    return reached(peer, [&] {
      return connect_as(
          {tag, rank_, purpose},
          [&] { return connect_tcp(target, deadline, Retry::kUntilDeadline, stop_); }, token_,
          deadline, policy_, stop_);
    });
  }

  SharedMemory await_mapping(std::uint64_t tag, std::uint64_t serial, int from, std::size_t bytes) {
    const ControlPlane::Memory memory =
        control_->await_memory(tag, serial, from, deadline_in(timeout_));
    if (memory.bytes != bytes) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("ranks disagree: rank {} shares {} bytes where rank {} shares {}",
                              from, memory.bytes, rank_, bytes),
                  {from});
    }
    return map_file(memory.fd.get(), bytes);
  }

  void connect_control(const NativeWorld& world) {
    const Deadline deadline = deadline_in(timeout_);
    Acceptor acceptor(token_, size_, policy_);
    Listener listener = listen_tcp({listen_host_, 0});
    const Contact mine{listener.address, random_unix_name(),
                       fmt::format("pid {} on {}", ::getpid(), host_name())};
    acceptor.open(std::move(listener.fd), false);
    acceptor.open(listen_unix_abstract(mine.local_name), true);

    const std::vector<std::string> texts = world.exchange("contacts", mine.text());
    std::vector<ControlPlane::Link> links(static_cast<std::size_t>(size_));
    same_machine_.assign(static_cast<std::size_t>(size_), false);
    same_machine_[static_cast<std::size_t>(rank_)] = true;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const auto index = static_cast<std::size_t>(peer);
      const Contact contact = Contact::parse(texts[index], peer);
      Visitor visitor =
          peer > rank_ ? acceptor.await({kControlTag, peer, Purpose::kControl}, deadline, stop_)
                       : reached(peer, [&] { return connect_near_or_far(contact, deadline); });
      same_machine_[index] = visitor.same_machine;
      links[index] = {std::move(visitor.socket), contact.who, visitor.same_machine,
                      visitor.protection};
    }
    control_ = std::make_unique<ControlPlane>(rank_, std::move(links));
  }

  Visitor connect_near_or_far(const Contact& contact, Deadline deadline) {
    Visitor visitor;
    const auto connect = [&] {
      try {
        visitor.same_machine = true;
        return connect_unix_abstract(contact.local_name, deadline);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kPeerLost) throw;
        visitor.same_machine = false;
        return connect_tcp(contact.tcp, deadline, Retry::kUntilDeadline, stop_);
      }
    };
    ProvenSocket proven = connect_as({kControlTag, rank_, Purpose::kControl}, connect, token_,
                                     deadline, policy_, stop_);
    visitor.socket = std::move(proven.socket);
    visitor.protection = proven.protection;
    return visitor;
  }

  // A node is named after the lowest rank on it, then numbered.
  void find_machines(const NativeWorld& world) {
    const auto first = std::find(same_machine_.begin(), same_machine_.end(), true);
    const std::string leader = fmt::to_string(first - same_machine_.begin());
    const std::string mine = MachineInfo{leader, fmt::format("{} at {}", host_name(), listen_host_),
                                         CpuSet::of_this_thread()}
                                 .text();
    std::vector<std::string> known;
    std::vector<std::string> names;
    for (const std::string& text : world.exchange("machines", mine)) {
      const MachineInfo info = MachineInfo::parse(text);
      const auto found = std::find(known.begin(), known.end(), info.leader);
      machines_.push_back(static_cast<int>(found - known.begin()));
      cpus_.push_back(info.cpus);
      if (found != known.end()) continue;
      known.push_back(info.leader);
      names.push_back(info.machine);
    }
    network_ = fmt::format("{}", fmt::join(names, ", "));
    log_info("rank {} of {}: {} node{}", rank_, size_, known.size(), known.size() == 1 ? "" : "s");
  }

  int rank_;
  int size_;
  Token token_;
  std::string listen_host_;
  bool always_invites_;
  EncryptionPolicy policy_;
  std::chrono::nanoseconds timeout_;
  std::stop_token stop_;
  std::vector<bool> same_machine_;
  std::vector<int> machines_;
  std::vector<CpuSet> cpus_;  // by rank
  std::string network_ = "one rank";
  std::unique_ptr<ControlPlane> control_;
  std::map<std::uint64_t, std::unique_ptr<Acceptor>> acceptors_;
  std::optional<std::stop_callback<std::function<void()>>> abandon_;  // last: it uses control_
};

}  // namespace

std::shared_ptr<Fabric> make_native_fabric(const NativeWorld& world, const CommOptions& options) {
  return std::make_shared<NativeFabric>(world, options);
}

}  // namespace lockstep
