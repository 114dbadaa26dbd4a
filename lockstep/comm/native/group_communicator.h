// The Communicator of the native and the threads backends, over a Fabric.
//
// If all its ranks share one node it works in shared memory (comm/shared/); otherwise, or when an
// algorithm is forced, it runs schedules over channels (comm/transport/). With comm.emulate all
// calls run schedules over paced channels in shared memory; with comm.emulated_nodes in addition,
// only what goes from one emulated node to another.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/history.h"
#include "lockstep/comm/native/channel_progress.h"
#include "lockstep/comm/native/fabric.h"
#include "lockstep/comm/native/recorder.h"
#include "lockstep/comm/native/selection.h"
#include "lockstep/comm/native/stall_monitor.h"
#include "lockstep/comm/native/task_queue.h"
#include "lockstep/comm/native/verification.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/shared/group.h"
#include "lockstep/comm/transport/executor.h"
#include "lockstep/comm/transport/paced_channel.h"
#include "lockstep/comm/transport/traffic.h"

namespace lockstep {

class GroupCommunicator final : public Communicator {
 public:
  // Sends `mine` to all members and returns the texts of all, by member.
  using ExchangeTexts = std::function<std::vector<std::string>(const std::string& mine)>;

  // `members` are world ranks in order; this rank is one of them. A split communicator has the
  // links and the NIC of its parent; without a parent, links are measured if selection needs them.
  GroupCommunicator(std::shared_ptr<Fabric> fabric, std::uint64_t tag, std::vector<int> members,
                    const CommOptions& options, const ExchangeTexts& exchange,
                    const GroupCommunicator* parent = nullptr);
  ~GroupCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string_view backend() const override { return fabric_->backend(); }
  std::vector<int> machines() const override { return machines_; }
  std::uint64_t bytes_sent() const override { return traffic_->sent(); }
  std::optional<std::uint64_t> bytes_across() const override { return traffic_->across(); }

  void run(const Call& call) override;
  Work start(const Call& call) override;
  void signal(int peer) override;
  void wait_signal(int peer) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  SymmetricBuffer allocate(std::size_t bytes) override;
  void abort(std::string_view reason) override;
  std::optional<Error> failure() const override { return inbox_->fault.error(); }
  bool wait_for_failure(std::chrono::nanoseconds timeout) const override {
    return inbox_->fault.wait_for(timeout);
  }
  Choice choice(const Call& call) const override;

 private:
  struct Peer {      // one other member
    int local = -1;  // its number on this node; -1: on another node
    std::unique_ptr<transport::Channel> collective;
    std::unique_ptr<transport::Channel> point_to_point;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t signals_raised = 0;
    std::uint64_t signals_awaited = 0;
    TaskQueue sends;
    TaskQueue receives;
  };

  Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  std::vector<bool> shares_cpu() const;
  shared::WaitPolicy wait_policy() const;
  void connect(const ExchangeTexts& exchange);
  // Through rings in shared memory.
  std::unique_ptr<transport::Channel> connect_near(shared::Stream stream, int member,
                                                   int local) const;
  // Whether a member is reached over an emulated link.
  bool is_paced(int member) const;

  // `mark`, unless 0, is the `extra` of the fingerprint.
  void execute(const Call& call, std::uint64_t mark = 0);
  // Gathers the notes of all ranks on an operation that has ended, and compares them.
  void verify(Verification& verification);
  void execute_schedule(const Call& call, const std::string& algorithm,
                        const Fingerprint& fingerprint);
  const transport::Prepared& prepared(const Call& call, const std::string& algorithm);
  // Sends or receives; the sequence number was drawn when the call was made.
  void transfer(const Call& call, std::uint64_t sequence);

  // Runs the body; an Error breaks the communicator for all members.
  template <class Body>
  void guarded(Body&& body);
  [[noreturn]] void break_down(const Error& error);
  void dump(const Error& error) const;
  // Waits for the end of all started operations.
  void finish();

  std::shared_ptr<Fabric> fabric_;
  std::uint64_t tag_;
  std::vector<int> members_;
  int rank_;
  CommOptions options_;
  std::shared_ptr<transport::EmulatedNic> nic_;
  std::vector<int> machines_;  // of members, perhaps emulated
  std::unique_ptr<transport::Traffic> traffic_;
  std::shared_ptr<Inbox> inbox_;
  std::vector<int> locals_;  // members on this node, as world ranks
  SharedMemory segment_memory_;
  std::shared_ptr<shared::Group> group_;  // also held by symmetric memory
  History history_;
  std::unique_ptr<StallMonitor> stall_monitor_;
  std::unique_ptr<ChannelProgress> collective_progress_;
  std::unique_ptr<ChannelProgress> point_to_point_progress_;
  std::unique_ptr<transport::Executor> executor_;
  std::unique_ptr<Selector> selector_;
  std::unique_ptr<Recorder> recorder_;
  std::map<std::tuple<Collective, std::string, int>, transport::Prepared> prepared_;
  std::uint64_t splits_ = 0;
  std::uint32_t allocations_ = 0;
  std::atomic<bool> dumped_{false};
  // Declared last: threads end before the members they use.
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null for this one
  TaskQueue collectives_;
};

}  // namespace lockstep
