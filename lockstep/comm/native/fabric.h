// A Fabric is what lies under the communicators of one rank: how it shares memory with the ranks of
// its machine, how it reaches the others, and how news of faults travels. Communicators of the same
// rank share one.
//
// Ranks are those of the world. A `tag` names one communicator; its members all know it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/comm/fault.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/history.h"
#include "lockstep/comm/shared/segment.h"
#include "lockstep/comm/transport/channel.h"

namespace lockstep {

// What a rank that has waited for a while tells the others.
struct Status {
  Fingerprint operation;
  std::vector<int> awaited;    // members
  std::uint64_t question = 0;  // of Inbox::ask(): who gets it answers
};

// Where news for one communicator arrives.
struct Inbox {
  Fault fault;
  std::vector<int> members;  // world ranks; what faults call rank i is members[i]

  // Signals from members on other machines, counted by member.
  void add_signal(int world_rank);
  // Waits for signal number `count` from a member.
  void wait_signal(int member, std::uint64_t count, std::chrono::nanoseconds timeout);

  // The last status of every member that has sent one.
  void put_status(int world_rank, Status status);
  std::map<int, Status> statuses() const;

  // The number of this rank's last operation: what it answers to those who ask.
  std::atomic<std::uint64_t> started{0};
  // A new question to the others, for a status; answers to those before it no longer count.
  std::uint64_t ask();
  void put_answer(int world_rank, std::uint64_t question, std::uint64_t operation);
  // The answers by member. Ends as soon as all others have answered or parted, or there is a fault;
  // who is stopped never answers, so it takes at most `timeout`.
  std::map<int, std::uint64_t> await_answers(std::chrono::nanoseconds timeout);

  // A member has closed the communicator; its last operation counts as a status. / This rank,
  // number `rank` of the members, has closed it; these were its operations. Those `far` have parted
  // or will yet. Both return an operation of a member that differs, once this rank has closed it;
  // the first only.
  std::optional<Error> part(int world_rank, const Fingerprint& last);
  std::optional<Error> close(int rank, std::span<const int> far, const History& operations);
  // Closed, and all who were to part have.
  bool settled() const;

 private:
  int member_of(int world_rank) const;
  std::optional<Error> compare_last(int member, const Fingerprint& last);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::uint64_t> signals_;
  std::map<int, Status> statuses_;
  std::uint64_t question_ = 0;
  std::map<int, std::uint64_t> answers_;
  std::set<int> parted_;
  struct Closed {
    int rank;
    std::vector<int> far;  // members
    History operations;
    bool told = false;  // of a disagreement; once is enough
  };
  std::unique_ptr<Closed> closed_;
};

using SharedMemory = std::shared_ptr<std::byte>;  // unmaps itself

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual std::string_view backend() const = 0;
  virtual int rank() const = 0;
  // The machine of every rank of the world, numbered from 0. Ranks with the same number share
  // memory, and have proved it.
  virtual const std::vector<int>& machines() const = 0;
  // Those that a rank of this machine may use.
  virtual CpuSet cpus(int rank) const = 0;
  // The machines by name, the same from run to run: under it measured figures are remembered.
  virtual std::string network() const = 0;

  // Zeroed memory that all `ranks` (of one machine, this one among them) see as one.
  virtual SharedMemory share(std::uint64_t tag, std::span<const int> ranks, std::size_t bytes) = 0;
  // Zeroed memory of each of `ranks`, as this one sees it; exchange `serial` of the communicator.
  virtual std::vector<SharedMemory> exchange(std::uint64_t tag, std::uint64_t serial,
                                             std::span<const int> ranks, std::size_t bytes) = 0;

  // Channels to ranks on other machines, in two steps with an exchange of texts between: invite()
  // says how others can reach this rank, connect() reaches the peers that sent invitations.
  virtual std::string invite(std::uint64_t tag) = 0;
  struct Channels {
    std::unique_ptr<transport::Channel> collective;
    std::unique_ptr<transport::Channel> point_to_point;
  };
  virtual std::map<int, Channels> connect(std::uint64_t tag, std::span<const int> peers,
                                          const std::map<int, std::string>& invitations) = 0;

  // News of this communicator is to arrive in `inbox`, until withdrawn.
  virtual void enroll(std::uint64_t tag, std::shared_ptr<Inbox> inbox) = 0;
  // This rank closes the communicator and tells those `far`, the members it shares no memory with,
  // the last of its operations. They compare it with theirs as it does with what they tell; whoever
  // closed first does so as long as the fabric lives. Waits for nobody.
  virtual void withdraw(std::uint64_t tag, std::span<const int> far, const History& operations) = 0;
  // Tells the other members of a communicator that it is broken.
  virtual void spread(std::uint64_t tag, std::span<const int> members, const Error& error) = 0;
  virtual void spread(std::uint64_t tag, std::span<const int> members, const Status& status) = 0;
  // Raises a signal at a rank of another machine.
  virtual void signal(std::uint64_t tag, int peer) = 0;
};

}  // namespace lockstep
