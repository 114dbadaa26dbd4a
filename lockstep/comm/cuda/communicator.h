// The communicator over GPU memory: see comm/device_communicator.h.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/comm/cuda/host_messages.h"
#include "lockstep/comm/cuda/kernels.h"
#include "lockstep/comm/cuda/mailbox.h"
#include "lockstep/comm/cuda/peer_memory.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/native/task_queue.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/cuda/memory.h"

namespace lockstep::cuda {

class CudaCommunicator final : public Communicator {
 public:
  CudaCommunicator(std::unique_ptr<Communicator> host, const DeviceCommunicatorOptions& options);
  ~CudaCommunicator() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return "cuda"; }
  Device device() const override { return options_.device; }
  std::vector<int> machines() const override { return host_->machines(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_ + messages_.bytes_sent(); }
  std::optional<std::uint64_t> bytes_across() const override { return 0; }
  std::optional<Error> failure() const override;
  bool wait_for_failure(std::chrono::nanoseconds timeout) const override {
    return host_->wait_for_failure(timeout);
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
  class Watch;  // ends kernels that wait for a lost rank
  // The places of a call's data.
  struct Placed {
    Place in = {}, out = {};
    bool is_direct = false;  // all data that others read is in symmetric memory
    std::size_t most = 0;    // bytes of the largest block of any rank
  };

  // A call outside of tasks, to its end.
  void execute(const Call& call);
  void queue(const Call& call, cudaStream_t stream, const Placed& placed);
  // Where ranks are threads of one process, these wait until a call may be queued.
  void pace_collective(cudaStream_t stream) const;
  void pace_message(cudaStream_t stream);
  bool must_pace(cudaStream_t stream) const;
  void queue_message(const Call& call, cudaStream_t stream);
  Placed place(const Call& call) const;
  Placed agree(const Call& call);
  void queue_move(const Call& call, cudaStream_t stream, const Placed& placed);
  void queue_reduce(const Call& call, cudaStream_t stream, const Placed& placed);
  void queue_all_reduce(const Call& call, cudaStream_t stream, const Placed& placed);
  void prepare_staging();
  // Stores the addresses of an allocation, on all ranks, where kernels read them.
  void store_bases(const PeerMemory::Allocation& made);

  Header header_of(const Call& call, const Placed& placed, std::size_t bytes) const;
  std::size_t piece_of(std::size_t blocks, std::size_t element) const;
  void copy_near(std::byte* to, const std::byte* from, std::size_t bytes,
                 cudaStream_t stream) const;
  // Waits for the stream; throws the error of the calls on it.
  void settle(cudaStream_t stream);
  void throw_failure() const;
  Error error_of(const Report& report) const;

  std::unique_ptr<Communicator> host_;
  DeviceCommunicatorOptions options_;
  PeerMemory memory_;
  PinnedBuffer report_;
  Buffer bases_;
  Peers peers_{};
  unsigned most_blocks_ = 1;
  std::optional<PeerMemory::Allocation> staging_;
  std::optional<Mailbox> mailbox_;
  cudaStream_t stream_ = nullptr;  // of calls outside of tasks
  std::optional<ThreadRanks> thread_ranks_;
  std::array<cudaEvent_t, 2> paces_{};
  std::size_t queued_messages_ = 0;
  std::atomic<std::uint64_t> bytes_sent_{0};
  mutable std::mutex mutex_;
  mutable std::optional<Error> failure_;
  std::unique_ptr<Watch> watch_;
  // Declared last: their threads end before the members they use.
  HostMessages messages_;
  TaskQueue collectives_;
};

}  // namespace lockstep::cuda
