// A communicator of ranks on several nodes that is made of others: see levels.h and two_levels.h.
//
// A collective goes in two levels where these serve it and the cost model (level_cost.h) expects
// that to be faster, or always where that is asked for. Everything else, and messages, goes through
// the communicator of all ranks.
//
// Before a collective all ranks compare it, over the host's communicator, so that ranks that
// disagree get an error that names both calls before any level sees them. Calls of the levels then
// are the same at all ranks of a level. A call in the order of a stream is a sequence of calls of
// the levels in that order.
//
// The levels fail by themselves: a rank of a node does not know about other nodes. So a thread
// watches the host's communicator, which knows all ranks, and the levels. The first error ends all
// of them. Ranks in it are those of this communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/fault.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/hierarchical/level_cost.h"
#include "lockstep/comm/hierarchical/levels.h"
#include "lockstep/comm/hierarchical/symmetric_ranges.h"
#include "lockstep/comm/hierarchical/two_levels.h"
#include "lockstep/comm/native/task_queue.h"

namespace lockstep::hierarchical {

struct HierarchicalOptions {
  TwoLevelOptions two_levels;
  bool forced = false;  // in two levels whatever they serve, at any cost
  bool measure = true;  // the links; else they are assumed
  // Whether every rank sends to every rank in Levels::flat; null: no call does.
  std::function<bool(const Call&)> is_exchange;
  // Throws for a call that a level would refuse, when others have begun; null: there is none.
  std::function<void(const Call&)> check;
  // Around what the levels do for a call, which share memory: it begins after that for the call
  // before, also in the order of another stream. Null: every call is done when it returns.
  std::function<void()> begin, end;
  // A communicator of the same kind, of the ranks of another one of the host.
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> host)> make_part;
};

class HierarchicalCommunicator final : public Communicator {
 public:
  // Called by all ranks of `host`, which are the grid of the options. `levels` were split from it.
  // Throws Error(kInvalidArgument) where the staging memory is too small.
  HierarchicalCommunicator(std::unique_ptr<Communicator> host, Levels levels,
                           const HierarchicalOptions& options);
  ~HierarchicalCommunicator() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return "hierarchical"; }
  Device device() const override { return levels_.inside->device(); }
  std::vector<int> machines() const override { return host_->machines(); }
  std::uint64_t bytes_sent() const override;
  std::optional<std::uint64_t> bytes_across() const override;
  std::optional<Error> failure() const override;
  bool wait_for_failure(std::chrono::nanoseconds timeout) const override {
    return failure() || fault_.wait_for(timeout);
  }

  void run(const Call& call) override;
  Work start(const Call& call) override;
  void signal(int peer) override { host_->signal(peer); }
  void wait_signal(int peer) override { host_->wait_signal(peer); }
  std::unique_ptr<Communicator> split(int color, int key) override;
  SymmetricBuffer allocate(std::size_t bytes) override;
  void abort(std::string_view reason) override;
  Choice choice(const Call& call) const override;

 private:
  // A level, and its ranks as this communicator numbers them.
  struct Level {
    Communicator& communicator;
    std::string_view name;
    std::vector<int> ranks;
  };

  void perform(const Call& call);
  void perform_in_one_level(const Call& call);
  void perform_in_two_levels(const Call& call, bool is_direct);
  bool is_in_two_levels(const Call& call, bool is_direct) const;
  bool is_symmetric(const Call& call) const;
  LevelCall level_call(const Call& call, bool is_direct) const;
  // Throws Error(kMismatch), at all ranks, unless all of them make the same call. Returns whether
  // all have said that their data is symmetric.
  bool compare(Fingerprint mine, bool is_symmetric);

  void throw_failure() const;
  // Keeps the first error and ends all levels.
  void fail_with(const Error& error) const;
  [[noreturn]] void fail_and_throw(const Error& error) const;
  void look_at_levels() const;
  Error error_of_level(const Level& level, const Error& error) const;
  const Level* failed_level() const;
  void watch();

  std::unique_ptr<Communicator> host_;
  Levels levels_;
  const HierarchicalOptions options_;
  const TwoLevels two_levels_;
  const std::vector<Level> all_levels_;
  LevelLinks links_;
  std::shared_ptr<SymmetricRanges> symmetric_ = std::make_shared<SymmetricRanges>();
  std::uint64_t operations_ = 0;  // so far, of all ranks together
  mutable Fault fault_;
  std::atomic<bool> ends_{false};
  std::thread watch_;
  TaskQueue collectives_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::hierarchical
