// The CUDA stream that receives the calling thread's copies, fills and operations.
//
// Tasks of a Stream, and a capture of an Ops, set it while they run. If it is not set, a copy waits
// for the queued work of the GPU's Ops, and the caller waits for the copy. So plain copies are
// ordered as on the CPU, at the price of waiting. Tasks of streams do not wait.
#pragma once

#include <cuda_runtime_api.h>

#include <thread>

namespace lockstep::cuda {

class CurrentStream {
 public:
  // Sets the current stream until destruction, which must be on the same thread.
  CurrentStream(cudaStream_t stream, const void* owner);
  ~CurrentStream();
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

  // The innermost one; nullptr if none is set.
  static cudaStream_t get();
  // Whether this thread is in a task of this owner, at any depth.
  static bool is_inside(const void* owner);

 private:
  cudaStream_t stream_;
  const void* owner_;
  const CurrentStream* outer_;
};

// The stream of an Ops. Plain copies of the thread that made it wait for it, and those of threads
// that made none. They do not wait for the Ops of other ranks in this process, in which a
// collective may wait for this rank.
class OperationStream {
 public:
  explicit OperationStream(int device);  // creates the stream
  ~OperationStream();                    // waits for queued work
  OperationStream(const OperationStream&) = delete;
  OperationStream& operator=(const OperationStream&) = delete;

  cudaStream_t get() const { return stream_; }
  // While it captures, nothing can wait for it.
  void set_capturing(bool capturing);

  // Makes `stream` wait for what is queued on the OperationStreams of this thread and GPU; if this
  // thread has made none, on all of the GPU.
  static void let_wait(int device, cudaStream_t stream);

 private:
  const int device_;
  const std::thread::id maker_ = std::this_thread::get_id();
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  bool capturing_ = false;
};

}  // namespace lockstep::cuda
