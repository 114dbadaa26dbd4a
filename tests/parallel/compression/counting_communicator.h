// A communicator that counts what its collectives put on the wire.
#pragma once

#include <cstdint>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::parallel::testing {

class CountingCommunicator : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& real) : real_(&real) {}

  // Bytes of payload from this rank to others, were each to take the shortest way.
  std::uint64_t bytes() const { return bytes_; }

  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  std::string_view backend() const override { return real_->backend(); }
  std::vector<int> machines() const override { return real_->machines(); }
  std::uint64_t bytes_sent() const override { return real_->bytes_sent(); }
  void run(const Call& call) override {
    count(call);
    real_->run(call);
  }
  Work start(const Call& call) override {
    count(call);
    return real_->start(call);
  }
  void signal(int peer) override { real_->signal(peer); }
  void wait_signal(int peer) override { real_->wait_signal(peer); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return real_->split(color, key);
  }
  SymmetricBuffer allocate(std::size_t bytes) override { return real_->allocate(bytes); }
  void abort(std::string_view reason) override { real_->abort(reason); }
  Choice choice(const Call& call) const override { return real_->choice(call); }

 private:
  void count(const Call& call) {
    const auto own = static_cast<std::size_t>(rank());
    const auto others = static_cast<std::uint64_t>(size()) - 1;
    switch (call.kind) {
      case Collective::kAllToAll:
        bytes_ += std::accumulate(call.counts.begin(), call.counts.end(), std::uint64_t{0});
        bytes_ -= call.counts[own];
        return;
      case Collective::kAllGather:
        bytes_ += others * call.counts[own];
        return;
      case Collective::kAllReduce:  // of a ring, to the nearest element
        bytes_ += 2 * call.in.count * others / (others + 1) * size_of(call.in.dtype);
        return;
      default:
        throw Error(ErrorCode::kInvalidArgument, "not counted: " + describe(call));
    }
  }

  Communicator* real_;
  std::uint64_t bytes_ = 0;
};

}  // namespace lockstep::parallel::testing
