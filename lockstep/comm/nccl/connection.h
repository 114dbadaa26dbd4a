// The ranks of a communicator of the host, connected by NCCL.
//
// NCCL has no deadlines and does not report a lost rank. So all of its calls are non-blocking and
// polled, and a thread watches what the GPU runs: the host's communicator fails, or a call takes
// longer than the deadline, or NCCL reports an error. Each of these is a *failure*. The first one
// is kept, and NCCL's communicator is aborted, which ends its kernels.
//
// The time of a queued call counts from the moment at which the GPU comes to it.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/nccl/library.h"

namespace lockstep::nccl {

class Connection {
 public:
  // Called by all ranks of `host`, two or more, which outlives it. Throws Error(kUnsupported) where
  // NCCL is missing, too old or not the same at all ranks, and where two ranks of one process have
  // the same GPU.
  Connection(Communicator& host, const DeviceCommunicatorOptions& options);
  // Waits for the other ranks, unless one is lost.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // begin() and end() enclose what a call queues on a stream; one thread does so at a time.
  void begin(const Fingerprint& call, cudaStream_t stream);
  void end(cudaStream_t stream);
  // Makes calls of NCCL as one group. They are on the stream when it returns.
  using Group = std::function<Result(const Library&, Comm)>;
  void queue(const Group& group);

  // Thread-safe.
  std::optional<Error> failure() const;
  void throw_failure() const;
  // Ends everything with this error, unless there is one already.
  void fail_with(const Error& error);

 private:
  struct Watched {
    Fingerprint call;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    std::optional<std::chrono::steady_clock::time_point> began = std::nullopt;
  };

  void connect();
  // Polls until NCCL has done what it was asked for. Throws the failure.
  using Text = std::function<std::string()>;  // what was asked for, in errors
  void settle(const Text& what);
  [[noreturn]] void end_and_throw();
  [[noreturn]] void fail_by(Result result, const std::string& what);
  Error error_of(Result result, const std::string& what) const;
  std::vector<int> others() const;
  cudaEvent_t take_event();
  // The same at all ranks, for what the host's communicator does not know.
  void fail_all_with(const Error& error);
  void watch();
  void look_at_calls();
  void drain();
  void finalize();
  void abort_nccl();

  Communicator& host_;
  const DeviceCommunicatorOptions options_;
  const Library& library_;

  std::mutex nccl_mutex_;  // held during every call of NCCL
  Comm comm_ = nullptr;

  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;

  std::mutex watched_mutex_;
  std::deque<Watched> watched_;
  std::vector<cudaEvent_t> unused_events_;
  std::optional<Watched> open_;  // between begin() and end()

  std::atomic<bool> ends_{false};
  std::thread watch_;
};

}  // namespace lockstep::nccl
