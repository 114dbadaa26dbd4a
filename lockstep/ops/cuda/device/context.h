// What every operation on a GPU needs: the stream it is queued on, properties of the GPU, the
// workspace.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/arguments.h"

namespace lockstep::cuda {

// Data-dependent errors. A kernel that reads an index outside its table writes the row and the
// value here, skips the element, and continues. The host reads the words together with the losses.
// The smallest row wins, so the report does not depend on timing:
//   atomicMin(&faults->token, fault(row, value))
struct Faults {
  unsigned long long token;
  unsigned long long type;
  unsigned long long target;
};
inline constexpr unsigned long long kNoFault = ~0ull;
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr unsigned long long
    fault(std::int64_t row, std::int32_t value) {
  return (static_cast<unsigned long long>(row) << 32) | static_cast<std::uint32_t>(value);
}

struct Context {
  int device = 0;
  int capability = 0;  // 80, 90, ...
  int multiprocessors = 0;
  std::size_t shared_memory = 0;  // the most a block may ask for
  cudaStream_t stream = nullptr;
  // The memory of Ops::use_scratch(), aligned to 256 bytes.
  std::byte* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  Faults* faults = nullptr;  // on the device
  // kPartials f64 on the device, for sums that are made in two launches; free between operations.
  double* partials = nullptr;
  static constexpr int kPartials = 8192;
  // kTickets counters on the device, for kernels whose last block ends the work; zero between
  // operations.
  unsigned* tickets = nullptr;
  static constexpr int kTickets = 16384;
  bool overlaps_kernels = false;  // device/overlap.cuh
};

// A number that may change from launch to launch of one captured graph: a value, or an f64 on the
// device that is read when the kernel runs.
struct ScalarArg {
  double value = 0;
  const double* at = nullptr;
#ifdef __CUDACC__
  __device__ double get() const { return at != nullptr ? *at : value; }
#endif
};
inline ScalarArg scalar(const ops::Scalar& number) {
  return {number.value, reinterpret_cast<const double*>(number.at.data())};
}

}  // namespace lockstep::cuda
