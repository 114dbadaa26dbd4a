// A world that says its ranks are on several nodes. Groups that are split from it do not, so ranks
// that share a GPU still reach each other's memory there.
#pragma once

#include "lockstep/comm/communicator.h"

namespace lockstep::train {

class EmulatedNodes : public Communicator {
 public:
  EmulatedNodes(Communicator& real, int nodes) : real_(real), nodes_(nodes) {}

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  std::string_view backend() const override { return real_.backend(); }
  std::vector<int> machines() const override {
    std::vector<int> all;
    for (int rank = 0; rank < size(); ++rank) all.push_back(rank * nodes_ / size());
    return all;
  }
  std::uint64_t bytes_sent() const override { return real_.bytes_sent(); }
  void run(const Call& call) override { real_.run(call); }
  Work start(const Call& call) override { return real_.start(call); }
  void signal(int peer) override { real_.signal(peer); }
  void wait_signal(int peer) override { real_.wait_signal(peer); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return real_.split(color, key);
  }
  SymmetricBuffer allocate(std::size_t bytes) override { return real_.allocate(bytes); }
  void abort(std::string_view reason) override { real_.abort(reason); }
  std::optional<Error> failure() const override { return real_.failure(); }
  bool wait_for_failure(std::chrono::nanoseconds timeout) const override {
    return real_.wait_for_failure(timeout);
  }
  Choice choice(const Call& call) const override { return real_.choice(call); }

 private:
  Communicator& real_;
  int nodes_;
};

}  // namespace lockstep::train
