// Which CUDA stream the calling thread's copies, fills and operations go to.
//
// A task of a Stream, and what an Ops captures, set it for as long as they last. Where it is not
// set, a copy waits for what the Ops of the GPU have queued, and the caller for the copy: so plain
// copies see and are seen as on the CPU, at the price of waiting; tasks of streams do not wait.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::cuda {

class CurrentStream {
 public:
  // Sets it until this is destroyed, by the same thread.
  CurrentStream(cudaStream_t stream, const void* owner);
  ~CurrentStream();
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

  // The innermost one's; nullptr where none is set.
  static cudaStream_t get();
  // Whether this thread is in a task of this owner, at any depth.
  static bool is_inside(const void* owner);

 private:
  cudaStream_t stream_;
  const void* owner_;
  const CurrentStream* outer_;
};

// A stream that plain copies of a GPU wait for: an Ops' own.
class OperationStream {
 public:
  explicit OperationStream(int device);  // makes the stream
  ~OperationStream();                    // finishes what is queued
  OperationStream(const OperationStream&) = delete;
  OperationStream& operator=(const OperationStream&) = delete;

  cudaStream_t get() const { return stream_; }
  // While it captures, nothing can wait for it.
  void set_capturing(bool capturing);

  // Makes `stream`, of any thread, wait for what all of the GPU's have queued.
  static void let_wait(int device, cudaStream_t stream);

 private:
  const int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  bool capturing_ = false;
};

}  // namespace lockstep::cuda
