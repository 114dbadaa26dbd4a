// Benches this library: any Communicator, in symmetric or private memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lockstep/bench/collectives/worker.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::bench {

// The world communicator of a bench worker, from the launcher's environment. `transport` is "auto"
// or "tcp".
std::unique_ptr<Communicator> connect_bench_world(std::string_view transport);

// Task::flavour kSymmetric takes buffers from Communicator::allocate; every other flavour is plain
// memory of the process.
class CommunicatorSubject : public Subject {
 public:
  explicit CommunicatorSubject(Communicator& world) : world_(world) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  Buffers prepare(const Task& task) override;
  void barrier() override { world_.barrier(); }
  void run() override { world_.run(call_); }
  std::string algorithm() override { return world_.choice(call_).algorithm; }
  std::string why() override { return world_.choice(call_).why; }

 private:
  Buffers symmetric_buffers(const Task& task);

  Communicator& world_;
  PrivateBuffers private_;
  SymmetricBuffer in_;
  SymmetricBuffer out_;
  Call call_;
};

}  // namespace lockstep::bench
