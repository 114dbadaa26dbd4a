#include "lockstep/ops/cuda/device/side_stream.h"

#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {

SideStream::SideStream(int device) {
  check(cudaSetDevice(device), "use the GPU");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  check(cudaEventCreateWithFlags(&begins_, cudaEventDisableTiming), "make an event");
  check(cudaEventCreateWithFlags(&ends_, cudaEventDisableTiming), "make an event");
}

SideStream::~SideStream() {
  cudaEventDestroy(ends_);
  cudaEventDestroy(begins_);
  cudaStreamDestroy(stream_);
}

Context SideStream::begin(const Context& context) {
  check(cudaEventRecord(begins_, context.stream), "record an event");
  check(cudaStreamWaitEvent(stream_, begins_, 0), "wait for an event");
  Context beside = context;
  beside.stream = stream_;
  return beside;
}

void SideStream::end(const Context& context) {
  check(cudaEventRecord(ends_, stream_), "record an event");
  check(cudaStreamWaitEvent(context.stream, ends_, 0), "wait for an event");
}

}  // namespace lockstep::cuda
