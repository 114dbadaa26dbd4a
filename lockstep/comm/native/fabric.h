// The connections of one rank, which all its communicators share: memory shared with ranks of its
// node, channels to other nodes, and notifications of faults.
//
// Ranks are world ranks. A `tag` identifies a communicator on all its members.
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

// What a rank sends the others after it has waited for a while.
struct Status {
  Fingerprint operation;
  std::vector<int> awaited;    // members
  std::uint64_t question = 0;  // of Inbox::ask(); the receiver answers it
};

// The incoming notifications of one communicator.
struct Inbox {
  Fault fault;
  std::vector<int> members;  // world ranks; rank i in errors is members[i]

  // Signals from members on other nodes, counted by member.
  void add_signal(int world_rank);
  // Waits for signal number `count` from a member.
  void wait_signal(int member, std::uint64_t count, std::chrono::nanoseconds timeout);

  // The last status of every member that has sent one.
  void put_status(int world_rank, Status status);
  std::map<int, Status> statuses() const;

  // The number of this rank's last operation, which answers questions.
  std::atomic<std::uint64_t> started{0};
  // Starts a new question for the status of others; answers to earlier questions are ignored.
  std::uint64_t ask();
  void put_answer(int world_rank, std::uint64_t question, std::uint64_t operation);
  // The answers by member. Returns when all others have answered or closed the communicator, at a
  // fault, or after `timeout` (a stopped process never answers).
  std::map<int, std::uint64_t> await_answers(std::chrono::nanoseconds timeout);

  // A member has closed the communicator; its last operation counts as a status. / This rank,
  // number `rank` of the members, has closed it after these operations; the members in `far` have
  // closed it or will. After this rank has closed it, both return the first disagreement with a
  // member.
  std::optional<Error> part(int world_rank, const Fingerprint& last);
  std::optional<Error> close(int rank, std::span<const int> far, const History& operations);
  // This rank and all members in `far` have closed the communicator.
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
    bool told = false;  // a disagreement was returned
  };
  std::unique_ptr<Closed> closed_;
};

using SharedMemory = std::shared_ptr<std::byte>;  // unmaps itself

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual std::string_view backend() const = 0;
  virtual int rank() const = 0;
  // The node of every rank of the world, numbered from 0. Ranks with the same number have been
  // verified to share memory.
  virtual const std::vector<int>& machines() const = 0;
  // The CPUs that a rank of this node may use.
  virtual CpuSet cpus(int rank) const = 0;
  // A name of the set of nodes, the same from run to run; measured links are cached under it.
  virtual std::string network() const = 0;

  // Zeroed memory that all `ranks` (of one node, including this one) share.
  virtual SharedMemory share(std::uint64_t tag, std::span<const int> ranks, std::size_t bytes) = 0;
  // Maps zeroed memory of each of `ranks` into this process; `serial` numbers the exchanges of a
  // communicator.
  virtual std::vector<SharedMemory> exchange(std::uint64_t tag, std::uint64_t serial,
                                             std::span<const int> ranks, std::size_t bytes) = 0;

  // Channels to ranks on other nodes, made in two steps with an exchange of texts between them:
  // invite() returns how to reach this rank, connect() connects to the peers that sent invitations.
  virtual std::string invite(std::uint64_t tag) = 0;
  struct Channels {
    std::unique_ptr<transport::Channel> collective;
    std::unique_ptr<transport::Channel> point_to_point;
  };
  virtual std::map<int, Channels> connect(std::uint64_t tag, std::span<const int> peers,
                                          const std::map<int, std::string>& invitations) = 0;

  // Delivers notifications of this communicator to `inbox`, until withdraw().
  virtual void enroll(std::uint64_t tag, std::shared_ptr<Inbox> inbox) = 0;
  // Closes the communicator on this rank and sends its last operation to `far`, the members that
  // share no memory with it. Both sides compare; the side that closed first compares as long as the
  // fabric exists. Does not wait.
  virtual void withdraw(std::uint64_t tag, std::span<const int> far, const History& operations) = 0;
  // Sends the error to the other members of a communicator.
  virtual void spread(std::uint64_t tag, std::span<const int> members, const Error& error) = 0;
  virtual void spread(std::uint64_t tag, std::span<const int> members, const Status& status) = 0;
  // Sends a signal to a rank of another node.
  virtual void signal(std::uint64_t tag, int peer) = 0;
};

}  // namespace lockstep
