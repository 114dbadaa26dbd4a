// A Communicator is a group of ranks that act together.
//
// Every collective is called by all ranks of the group, in the same order, with matching arguments;
// ranks that disagree get Error(kMismatch), never a hang or a wrong result. (Ranks that disagree on
// the root of an operation may get the error from their next call. Without a next call, one of them
// logs it when it closes the communicator, and its process exits with 1.) Every wait has a deadline
// (Error(kTimeout) names the missing ranks); a rank that dies is reported to all others as
// Error(kPeerLost). After any of these errors the communicator is unusable: every later call throws
// the same error.
//
// Calls run in the order in which they were made. One thread may use a communicator at a time;
// abort() and the methods of Work may be called from any thread. Messages between two ranks are
// delivered in the order sent; sends and receives do not wait for collectives, nor the reverse.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/call.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/device.h"

namespace lockstep {

// Symmetric memory: the other ranks of the same node map it, so collectives on it need no copies.
// All ranks of a communicator allocate and free it together. It must not outlive the communicator.
class SymmetricBuffer {
 public:
  SymmetricBuffer() = default;
  SymmetricBuffer(std::shared_ptr<void> owner, std::byte* data, std::size_t bytes)
      : owner_(std::move(owner)), data_(data), bytes_(bytes) {}

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// The algorithm that was selected for a call, and the estimated costs.
struct Choice {
  std::string algorithm;
  std::string why;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;  // "native", "threads", "mpi", "cuda", "nccl"
  // The device whose memory its data lies in.
  virtual Device device() const { return {}; }

  // The node of each rank, numbered from 0: ranks with the same number share memory.
  virtual std::vector<int> machines() const = 0;
  // Bytes of payload that this rank has sent to other ranks over this communicator: counted if they
  // went through a channel, else the minimum of each call (comm/least_bytes.h).
  virtual std::uint64_t bytes_sent() const = 0;
  // Of these, to ranks of other nodes; nothing if it is not known (mpi).
  virtual std::optional<std::uint64_t> bytes_across() const { return std::nullopt; }

  // Runs a call to its end. / Starts it; use the Work to wait for its end.
  virtual void run(const Call& call) = 0;
  virtual Work start(const Call& call) = 0;

  // Sends a signal to `peer`. / Waits for the next signal from `peer`. Writes to symmetric memory
  // before signal() are visible after the matching wait.
  virtual void signal(int peer) = 0;
  virtual void wait_signal(int peer) = 0;

  // Ranks with the same color form a new group, ordered by (key, old rank). A rank with a negative
  // color takes part and gets null.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Zeroed, page-aligned memory; all ranks ask for the same number of bytes.
  virtual SymmetricBuffer allocate(std::size_t bytes) = 0;

  // Ends every operation of every rank of the group, now and later, with Error(kAborted, reason).
  virtual void abort(std::string_view reason) = 0;

  // The error that has made the communicator unusable, as far as this rank knows. / Waits for one;
  // whether there is one.
  virtual std::optional<Error> failure() const { return std::nullopt; }
  virtual bool wait_for_failure(std::chrono::nanoseconds timeout) const;

  virtual Choice choice(const Call& call) const = 0;

  void barrier() { run(lockstep::barrier()); }
  void send(ConstData in, int peer) { run(lockstep::send(in, peer)); }
  void receive(Data out, int peer) { run(lockstep::receive(out, peer)); }
  void copy(ConstData in, Data out) { run(lockstep::copy(in, out)); }
  void broadcast(Data data, int root) { run(lockstep::broadcast(data, root)); }
  void scatter(ConstData in, Data out, int root) { run(lockstep::scatter(in, out, root)); }
  void gather(ConstData in, Data out, int root) { run(lockstep::gather(in, out, root)); }
  void reduce(ConstData in, Data out, ReduceOp op, int root) {
    run(lockstep::reduce(in, out, op, root));
  }
  void all_reduce(Data data, ReduceOp op = ReduceOp::kSum) { run(lockstep::all_reduce(data, op)); }
  void all_reduce(ConstData in, Data out, ReduceOp op = ReduceOp::kSum) {
    run(lockstep::all_reduce(in, out, op));
  }
  void all_gather(ConstData in, Data out) { run(lockstep::all_gather(in, out)); }
  void reduce_scatter(ConstData in, Data out, ReduceOp op = ReduceOp::kSum) {
    run(lockstep::reduce_scatter(in, out, op));
  }
  void all_to_all(ConstData in, Data out) { run(lockstep::all_to_all(in, out)); }
  void scatter_v(ConstData in, std::span<const std::size_t> counts, Data out, int root) {
    run(lockstep::scatter_v(in, counts, out, root));
  }
  void gather_v(ConstData in, Data out, std::span<const std::size_t> counts, int root) {
    run(lockstep::gather_v(in, out, counts, root));
  }
  void all_gather_v(ConstData in, Data out, std::span<const std::size_t> counts) {
    run(lockstep::all_gather_v(in, out, counts));
  }
  void all_to_all_v(ConstData in, std::span<const std::size_t> in_counts, Data out,
                    std::span<const std::size_t> out_counts) {
    run(lockstep::all_to_all_v(in, in_counts, out, out_counts));
  }
};

}  // namespace lockstep
