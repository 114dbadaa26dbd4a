// The control plane of a rank: a connection to every other rank of the world, and a thread that
// listens on them. It carries faults, signals, goodbyes and descriptors of shared memory, and the
// end of a connection signals a death.
//
// A rank whose connection ends without a goodbye is dead; all communicators are notified at once.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/record.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep {

class ControlPlane {
 public:
  // A connection to a rank of this machine is a local socket, which can carry descriptors; one to
  // another machine carries records.
  struct Link {
    UniqueFd socket;
    std::string who;  // "pid 123 on node1", for messages
    bool same_machine = true;
    Protection protection;
  };

  // `links` by world rank; the one of `rank` itself is empty.
  ControlPlane(int rank, std::vector<Link> links);
  // Sends goodbyes, and handles what has already arrived.
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  void enroll(std::uint64_t tag, std::shared_ptr<Inbox> inbox);
  // Sends the last operation of this rank to the ranks in `far`. The inbox stays until they have
  // sent theirs, which are compared when they arrive.
  void withdraw(std::uint64_t tag, std::span<const int> far, const History& operations);

  // See Fabric.
  void abandon(const Error& error);

  void send_fault(std::uint64_t tag, int to, const Error& error);
  void send_status(std::uint64_t tag, int to, const Status& status);
  void send_signal(std::uint64_t tag, int to);
  // Only to ranks of the same node.
  void send_memory(std::uint64_t tag, std::uint64_t serial, int to, int fd, std::size_t bytes);

  struct Memory {
    UniqueFd fd;
    std::size_t bytes = 0;
  };
  // The memory that `from` sends for (tag, serial). Throws if it dies or does not send it in time.
  Memory await_memory(std::uint64_t tag, std::uint64_t serial, int from, Deadline deadline);

 private:
  struct Frame;

  static void put_ranks(Frame& frame, std::span<const int> ranks);
  static std::vector<int> take_ranks(const Frame& frame);

  void send(int to, const Frame& frame, int fd = -1);
  void listen();
  // False when the link has ended. The first handles one frame of a local socket, the second all
  // that have arrived.
  bool receive(int from);
  bool receive_records(int from);
  void handle(int from, const Frame& frame, UniqueFd fd);
  void report_gone(int from);
  // Ends all communicators of which both ranks are members, on all ranks.
  void report_corruption(int from, const Error& error);
  // The error with rank numbers of a communicator with these members.
  Error death_of(int rank, const std::vector<int>& members) const;

  struct Peer;

  int rank_;
  std::vector<Link> links_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null on this machine
  std::vector<std::unique_ptr<std::mutex>> send_mutexes_;
  Pipe wake_;  // closing it stops the listener

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<Inbox>> inboxes_;
  std::map<std::uint64_t, Error> early_faults_;  // of communicators that are not enrolled yet
  std::vector<std::pair<std::uint64_t, int>> early_signals_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, int>, Memory> memory_;
  std::set<int> dead_;  // also those whose data was corrupted
  std::set<int> left_;  // said goodbye
  std::optional<Error> abandoned_;

  std::thread listener_;
};

}  // namespace lockstep
