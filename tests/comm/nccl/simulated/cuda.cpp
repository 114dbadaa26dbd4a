// The functions of CUDA that comm/nccl calls, in host memory: a stream runs its work at once. The
// kernels of comm/nccl/reduction.h are plain loops.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/nccl/reduction.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/cuda/devices.h"

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<char*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  *data = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t) {
  std::free(data);
  return cudaSuccess;
}

// Every rank that asks has a GPU of its own.
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int) {
  static std::atomic<int> asked{0};
  std::snprintf(text, static_cast<std::size_t>(bytes), "%d", asked++);
  return cudaSuccess;
}

}  // extern "C"

namespace lockstep::cuda {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(ErrorCode::kSystem, "{}", what);
}
void use_device(int) {}
bool mps_runs() { return true; }
cudaStream_t CurrentStream::get() { return nullptr; }
void OperationStream::let_wait(int, cudaStream_t) {}

}  // namespace lockstep::cuda

namespace lockstep::nccl {
namespace {

template <class T>
auto widened(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return to_float(x);
  } else {
    return x;
  }
}

template <class T, class W>
T narrowed(W x) {
  if constexpr (std::is_same_v<T, Half>) return to_half(x);
  if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(x);
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(x);
}

template <class W>
W combined(W a, W b, ReduceOp::Kind op) {
  switch (op) {
    case ReduceOp::kProd:
      return static_cast<W>(a * b);
    case ReduceOp::kMin:
      return b < a ? b : a;
    case ReduceOp::kMax:
      return b > a ? b : a;
    default:
      return static_cast<W>(a + b);
  }
}

// Of ranks [first, end).
template <class T>
auto tree_of(const Blocks& blocks, std::size_t i, int first, int end, ReduceOp::Kind op)
    -> decltype(widened(T())) {
  const auto* const data = reinterpret_cast<const T*>(blocks.first);
  if (end - first == 1) return widened(data[static_cast<std::size_t>(first) * blocks.stride + i]);
  int left = 1;
  while (left * 2 < end - first) left *= 2;
  return combined(tree_of<T>(blocks, i, first, first + left, op),
                  tree_of<T>(blocks, i, first + left, end, op), op);
}

}  // namespace

void launch_tree(const Blocks& blocks, std::byte* out, std::size_t count, DType dtype,
                 ReduceOp::Kind op, cudaStream_t) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < count; ++i) {
      auto result = tree_of<T>(blocks, i, 0, blocks.ranks, op);
      if (op == ReduceOp::kMean) result = static_cast<decltype(result)>(result / blocks.ranks);
      reinterpret_cast<T*>(out)[i] = narrowed<T>(result);
    }
  });
}

void launch_mean(std::byte* data, std::size_t count, DType dtype, int ranks, cudaStream_t) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* const values = reinterpret_cast<T*>(data);
    for (std::size_t i = 0; i < count; ++i) values[i] = narrowed<T>(widened(values[i]) / ranks);
  });
}

void load_reductions() {}

}  // namespace lockstep::nccl
