#include "lockstep/comm/native/thread_fabric.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/text.h"
#include "lockstep/comm/native/memory.h"

namespace lockstep {
namespace {

// What the ranks have in common.
struct SharedState {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, std::weak_ptr<std::byte>> shared;
  struct Exchange {
    std::map<int, SharedMemory> memory;
    std::size_t bytes = 0;
    std::size_t taken = 0;
  };
  std::map<std::tuple<std::uint64_t, std::uint64_t, int>, Exchange> exchanges;
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<Inbox>> inboxes;  // by tag and rank
};

class ThreadFabric final : public Fabric {
 public:
  ThreadFabric(std::shared_ptr<SharedState> shared_state, int rank, int ranks,
               std::chrono::nanoseconds timeout)
      : shared_state_(std::move(shared_state)),
        rank_(rank),
        machines_(static_cast<std::size_t>(ranks), 0),
        timeout_(timeout) {}

  std::string_view backend() const override { return "threads"; }
  int rank() const override { return rank_; }
  const std::vector<int>& machines() const override { return machines_; }
  CpuSet cpus(int) const override { return CpuSet::of_this_thread(); }
  std::string network() const override { return "threads"; }

  SharedMemory share(std::uint64_t tag, std::span<const int>, std::size_t bytes) override {
    const std::lock_guard lock(shared_state_->mutex);
    std::weak_ptr<std::byte>& known = shared_state_->shared[tag];
    SharedMemory memory = known.lock();
    if (memory == nullptr) known = memory = map_private(bytes);
    return memory;
  }

  std::vector<SharedMemory> exchange(std::uint64_t tag, std::uint64_t serial,
                                     std::span<const int> ranks, std::size_t bytes) override {
    const auto key = std::make_tuple(tag, serial, ranks.front());
    std::unique_lock lock(shared_state_->mutex);
    SharedState::Exchange& exchange = shared_state_->exchanges[key];
    if (!exchange.memory.empty() && exchange.bytes != bytes) {
      fail(ErrorCode::kMismatch,
           "ranks disagree: rank {} allocates {} bytes where others allocate {}", rank_, bytes,
           exchange.bytes);
    }
    exchange.bytes = bytes;
    exchange.memory[rank_] = map_private(bytes);
    shared_state_->changed.notify_all();
    const std::shared_ptr<Inbox> inbox = shared_state_->inboxes.at({tag, rank_});
    const bool came = shared_state_->changed.wait_for(lock, timeout_, [&] {
      return exchange.memory.size() == ranks.size() || inbox->fault.present();
    });
    if (exchange.memory.size() != ranks.size()) fail_incomplete(exchange, ranks, *inbox, came);
    std::vector<SharedMemory> result;
    for (int rank : ranks) result.push_back(exchange.memory[rank]);
    if (++exchange.taken == ranks.size()) shared_state_->exchanges.erase(key);
    return result;
  }

  std::string invite(std::uint64_t) override { return {}; }
  std::map<int, Channels> connect(std::uint64_t, std::span<const int> peers,
                                  const std::map<int, std::string>&) override {
    if (!peers.empty()) {
      fail(ErrorCode::kUnsupported,
           "ranks that are threads always share memory; comm.transport = \"tcp\" needs the native "
           "backend");
    }
    return {};
  }

  void enroll(std::uint64_t tag, std::shared_ptr<Inbox> inbox) override {
    const std::lock_guard lock(shared_state_->mutex);
    shared_state_->inboxes[{tag, rank_}] = std::move(inbox);
  }
  void withdraw(std::uint64_t tag, std::span<const int>, const History&) override {
    const std::lock_guard lock(shared_state_->mutex);
    shared_state_->inboxes.erase({tag, rank_});
  }
  void spread(std::uint64_t tag, std::span<const int> members, const Error& error) override {
    each_other_inbox(tag, members, [&](Inbox& inbox) { inbox.fault.report(error); });
    shared_state_->changed.notify_all();
  }
  void spread(std::uint64_t tag, std::span<const int> members, const Status& status) override {
    const std::lock_guard lock(shared_state_->mutex);
    for (int member : members) {
      const auto found = shared_state_->inboxes.find({tag, member});
      if (member == rank_ || found == shared_state_->inboxes.end()) continue;
      found->second->put_status(rank_, status);
      if (status.question == 0) continue;
      shared_state_->inboxes.at({tag, rank_})
          ->put_answer(member, status.question, found->second->started);
    }
  }
  void signal(std::uint64_t, int) override {}  // every peer is local

 private:
  template <class Visit>
  void each_other_inbox(std::uint64_t tag, std::span<const int> members, Visit&& visit) {
    const std::lock_guard lock(shared_state_->mutex);
    for (int member : members) {
      const auto found = shared_state_->inboxes.find({tag, member});
      if (member != rank_ && found != shared_state_->inboxes.end()) visit(*found->second);
    }
  }

  [[noreturn]] static void fail_incomplete(const SharedState::Exchange& exchange,
                                           std::span<const int> ranks, const Inbox& inbox,
                                           bool came) {
    if (came) inbox.fault.throw_if_present();
    std::vector<int> missing;
    for (int rank : ranks) {
      if (!exchange.memory.contains(rank)) missing.push_back(rank);
    }
    throw Error(ErrorCode::kTimeout,
                fmt::format("allocate: rank {} did not take part in time", join_ranks(missing)),
                missing);
  }

  std::shared_ptr<SharedState> shared_state_;
  int rank_;
  std::vector<int> machines_;
  std::chrono::nanoseconds timeout_;
};

}  // namespace

std::vector<std::shared_ptr<Fabric>> make_thread_fabrics(int ranks,
                                                         std::chrono::nanoseconds timeout) {
  auto shared_state = std::make_shared<SharedState>();
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < ranks; ++rank) {
    fabrics.push_back(std::make_shared<ThreadFabric>(shared_state, rank, ranks, timeout));
  }
  return fabrics;
}

}  // namespace lockstep
