#include "lockstep/tensor/cuda/current_stream.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::cuda {
namespace {

thread_local const CurrentStream* innermost = nullptr;

// All OperationStreams. Never destroyed: the last of them may outlive static objects.
struct Registry {
  std::mutex mutex;
  std::vector<OperationStream*> streams;
};
Registry& registry() {
  static auto& made = *new Registry;
  return made;
}

}  // namespace

CurrentStream::CurrentStream(cudaStream_t stream, const void* owner)
    : stream_(stream), owner_(owner), outer_(innermost) {
  innermost = this;
}

CurrentStream::~CurrentStream() { innermost = outer_; }

cudaStream_t CurrentStream::get() { return innermost == nullptr ? nullptr : innermost->stream_; }

bool CurrentStream::is_inside(const void* owner) {
  for (const CurrentStream* one = innermost; one != nullptr; one = one->outer_) {
    if (one->owner_ == owner) return true;
  }
  return false;
}

OperationStream::OperationStream(int device) : device_(device) {
  use_device(device);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.streams.push_back(this);
}

OperationStream::~OperationStream() {
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    std::erase(all.streams, this);
  }
  cudaStreamSynchronize(stream_);
  cudaEventDestroy(event_);
  cudaStreamDestroy(stream_);
}

void OperationStream::set_capturing(bool capturing) {
  const std::lock_guard lock(registry().mutex);
  capturing_ = capturing;
}

void OperationStream::let_wait(int device, cudaStream_t stream) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto is_own = [device, here = std::this_thread::get_id()](const OperationStream* one) {
    return one->device_ == device && one->maker_ == here;
  };
  const bool has_own = std::ranges::any_of(all.streams, is_own);
  for (const OperationStream* one : all.streams) {
    if (one->device_ != device || one->capturing_ || (has_own && !is_own(one))) continue;
    check(cudaEventRecord(one->event_, one->stream_), "recording an event");
    check(cudaStreamWaitEvent(stream, one->event_, 0), "waiting for an event");
  }
}

}  // namespace lockstep::cuda
