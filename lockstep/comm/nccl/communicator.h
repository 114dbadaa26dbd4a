// The communicator over GPU memory by NCCL: see comm/device_communicator.h.
//
// A call of several ranks has four parts: the hosts compare it (comm/fingerprint.h), it is queued
// as calls of NCCL and kernels, the GPU runs it, and the Connection watches it. Comparing takes one
// all_gather of 32 bytes between the hosts, which also makes a rank that does not come known by its
// name. NCCL itself would hang or sum garbage.
//
// NCCL does what it can do as ReduceOp promises. The rest are groups of sends and receives:
// gather, scatter, all_to_all, blocks that vary, and reductions *by tree*. There every rank gets
// its part of the data from all ranks into staging memory and combines it by a kernel; all_reduce
// and reduce then exchange the parts. That moves as many bytes as a ring does.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <optional>

#include "lockstep/comm/cuda/host_messages.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/native/task_queue.h"
#include "lockstep/comm/nccl/connection.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::nccl {

// What a communicator that is a level of another (comm/hierarchical) leaves to it.
struct OfLevels {
  std::byte* staging = nullptr;  // of kStagingBytes, instead of memory of its own
  bool is_compared = false;      // calls that come here have been compared
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, const DeviceCommunicatorOptions& options,
                   const OfLevels& of_levels = {});
  ~NcclCommunicator() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return "nccl"; }
  Device device() const override { return options_.device; }
  std::vector<int> machines() const override { return host_->machines(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_ + messages_.bytes_sent(); }
  // As if NCCL's own algorithms were rings in the order of ranks.
  std::optional<std::uint64_t> bytes_across() const override {
    return bytes_across_ + messages_.bytes_across();
  }
  std::optional<Error> failure() const override;
  bool wait_for_failure(std::chrono::nanoseconds timeout) const override;

  void run(const Call& call) override;
  Work start(const Call& call) override;
  void signal(int peer) override { host_->signal(peer); }
  void wait_signal(int peer) override { host_->wait_signal(peer); }
  std::unique_ptr<Communicator> split(int color, int key) override;
  // Memory of this rank alone, in the same pages as native symmetric memory.
  SymmetricBuffer allocate(std::size_t bytes) override;
  void abort(std::string_view reason) override;
  Choice choice(const Call& call) const override;
  // Whether every rank sends to every rank.
  bool is_exchange(const Call& call) const;
  // Throws Error(kUnsupported) in a task of a stream that is captured.
  static void refuse_capture(const Call& call);

 private:
  // A call outside of tasks, to its end.
  void execute(const Call& call);
  void queue(const Call& call, cudaStream_t stream);
  void queue_on_ranks(const Call& call, cudaStream_t stream);
  void queue_alone(const Call& call, cudaStream_t stream) const;
  void queue_barrier(cudaStream_t stream);
  void queue_broadcast(const Call& call, cudaStream_t stream);
  void queue_blocks(const Call& call, cudaStream_t stream);
  void queue_all_to_all_in_place(const Call& call, cudaStream_t stream);
  void queue_reduction(const Call& call, cudaStream_t stream);
  void queue_reduce_scatter_by_tree(const Call& call, cudaStream_t stream);
  void queue_all_reduce_by_tree(const Call& call, cudaStream_t stream);
  void queue_small_all_reduce(const Call& call, cudaStream_t stream);
  bool is_by_tree(const Call& call) const;

  // Throw Error(kMismatch), at all ranks, unless all of them make the same call.
  void compare(const Fingerprint& mine);
  void compare_block_sizes(const Call& call);

  // The staging memory, after its last use. / Where the use that began with take_staging() ends.
  std::byte* take_staging(cudaStream_t stream);
  void return_staging(cudaStream_t stream);
  std::size_t staged_elements(std::size_t element) const;  // of each rank's block

  std::unique_ptr<Communicator> host_;
  const DeviceCommunicatorOptions options_;
  const OfLevels of_levels_;
  const std::vector<int> nodes_;
  cudaStream_t stream_ = nullptr;       // of calls outside of tasks
  cudaEvent_t staging_free_ = nullptr;  // the last use of staging_ has ended
  Buffer staging_;                      // allocated when it is first needed, unless it is given
  Buffer barrier_;                      // what barriers reduce
  std::uint64_t operations_ = 0;        // so far, of all ranks together
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_across_{0};
  std::optional<Connection> connection_;  // none: this is the only rank
  // Declared last: their threads end before the members they use.
  cuda::HostMessages messages_;
  TaskQueue collectives_;
};

}  // namespace lockstep::nccl
