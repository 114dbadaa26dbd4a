#include "lockstep/tensor/cuda/event.h"

#include <memory>
#include <utility>

#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::cuda {
namespace {

class CudaEvent final : public Event::State {
 public:
  CudaEvent(cudaStream_t stream, std::exception_ptr error) : error_(std::move(error)) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    check(status, "recording an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool done() const override {
    if (cudaEventQuery(event_) != cudaErrorNotReady) return true;
    cudaGetLastError();  // else the next launch would report it
    return false;
  }
  std::exception_ptr await() const override {
    const cudaError_t status = cudaEventSynchronize(event_);
    if (error_ != nullptr) return error_;
    try {
      check(status, "work on the GPU");
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  cudaEvent_t event() const { return event_; }
  std::exception_ptr error() const { return error_; }

 private:
  cudaEvent_t event_ = nullptr;
  const std::exception_ptr error_;
};

class CudaMoment final : public Moment::State {
 public:
  explicit CudaMoment(cudaStream_t stream) {
    check(cudaEventCreate(&event_), "making an event");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    check(status, "recording an event");
  }
  ~CudaMoment() override { cudaEventDestroy(event_); }
  CudaMoment(const CudaMoment&) = delete;
  CudaMoment& operator=(const CudaMoment&) = delete;

  double seconds_since(const Moment::State& earlier) const override {
    const auto& begin = dynamic_cast<const CudaMoment&>(earlier);
    check(cudaEventSynchronize(event_), "work on the GPU");
    check(cudaEventSynchronize(begin.event_), "work on the GPU");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "timing work on the GPU");
    return static_cast<double>(milliseconds) / 1000;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

Event record_event(int device, cudaStream_t stream, std::exception_ptr error) {
  use_device(device);
  return Event(std::make_shared<CudaEvent>(stream, std::move(error)));
}

Moment record_moment(int device, cudaStream_t stream) {
  use_device(device);
  return Moment(std::make_shared<CudaMoment>(stream));
}

std::exception_ptr wait_for_event(cudaStream_t stream, const Event& event) {
  const auto* const on_gpu = dynamic_cast<const CudaEvent*>(event.state());
  if (on_gpu == nullptr) return event.await();
  check(cudaStreamWaitEvent(stream, on_gpu->event(), 0), "waiting for an event");
  return on_gpu->error();
}

}  // namespace lockstep::cuda
