#include "lockstep/tensor/cuda/queue.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/cuda/devices.h"
#include "lockstep/tensor/cuda/event.h"

namespace lockstep::cuda {
namespace {

class CudaQueue final : public Stream::Queue {
 public:
  explicit CudaQueue(int device) : device_(device) {
    use_device(device);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  ~CudaQueue() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  void run(std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) return;
    try {
      use_device(device_);
      const CurrentStream current(stream_, this);
      task();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  Event record() override {
    const std::lock_guard lock(mutex_);
    return record_event(device_, stream_, error_);
  }

  void wait(const Event& event) override {
    // Without the lock: the work that the event waits for may itself use this stream.
    use_device(device_);
    std::exception_ptr error = wait_for_event(stream_, event);
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }

  void synchronize() override {
    if (CurrentStream::is_inside(this)) {
      fail(ErrorCode::kInvalidArgument,
           "a task asked its own stream to synchronize, which would wait for the task itself; let "
           "the thread that queued it do so");
    }
    const cudaError_t status = cudaStreamSynchronize(stream_);
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      error = std::exchange(error_, nullptr);
    }
    if (error != nullptr) std::rethrow_exception(error);
    check(status, "work on the GPU");
  }

 private:
  const int device_;
  cudaStream_t stream_ = nullptr;
  std::recursive_mutex mutex_;  // a task may queue another, which is called at once
  std::exception_ptr error_;    // of the first task that threw
};

}  // namespace

std::unique_ptr<Stream::Queue> make_queue(int device) {
  return std::make_unique<CudaQueue>(device);
}

}  // namespace lockstep::cuda
