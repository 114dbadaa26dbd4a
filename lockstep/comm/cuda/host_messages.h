// Messages between ranks on GPUs. They go through host memory and the host's communicator, which
// has their order and their deadlines, so they do not wait for collectives.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/native/task_queue.h"

namespace lockstep::cuda {

class HostMessages {
 public:
  // `host` outlives it.
  HostMessages(Communicator& host, Device device);

  static bool is_message(const Call& call) {
    return call.kind == Collective::kSend || call.kind == Collective::kReceive;
  }
  // Throws Error(kUnsupported) in a task of a stream.
  void run(const Call& call);
  Work start(const Call& call);

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_across() const { return bytes_across_; }  // of these, to other nodes

 private:
  void transfer(const Call& call);
  TaskQueue& queue_of(const Call& call);  // to or from the same rank

  Communicator& host_;
  const Device device_;
  const std::vector<int> nodes_;
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_across_{0};
  std::vector<TaskQueue> sends_, receives_;  // by peer; declared last, to end first
};

}  // namespace lockstep::cuda
