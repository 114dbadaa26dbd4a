// Quantizes in one pass over memory: values are loaded once, and both the rows and the transposed
// rows are written from registers and shared memory.
//
// A block has a tile of kTileRows rows and kTileColumns columns. A thread has 4 neighbouring rows
// and 8 neighbouring columns of it: it loads 8 elements of a row at once, and writes 8 bytes of a
// row at once. The 4 rows of one column are a word of the transposed tile, which is assembled in
// shared memory and written in vectors of 16 bytes:
//
//   thread      columns 8 c .. 8 c + 7, c = thread % 8
//               rows    4 g .. 4 g + 3, g = thread / 8
//   words       [column][g], in rows of kStride, which avoids bank conflicts in both directions
//
// Column sums of a tile go to the workspace as a row of partial sums, and a second launch sums
// these in order (partial_sums.h). The largest magnitude is an integer maximum over the bits of
// non-negative floats, which have the order of the floats, with NaN above all. So the order of
// blocks does not matter.
//
// Tensors with unsuitable extents or addresses use plain loops.
#include <cuda_fp8.h>

#include <algorithm>

#include "lockstep/ops/cuda/device/partial_sums.h"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/activation.cuh"
#include "lockstep/ops/cuda/float8/float8.h"
#include "lockstep/ops/cuda/float8/scale.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTileRows = 128;
constexpr int kTileColumns = 64;
constexpr int kRows = 4;     // of a thread
constexpr int kColumns = 8;  // of a thread
constexpr int kAcross = kTileColumns / kColumns;
constexpr int kGroups = kTileRows / kRows;
constexpr int kStride = kGroups + 1;
static_assert(kAcross * kGroups == kThreads && kAcross == 8);

// What is quantized: x, f(z), or x f'(z).
enum class Value { kX, kActivated, kDifferentiated };

// kX ignores kActivation.
template <class Type, Value kValue, ops::Activation kActivation>
struct Source {
  using T = Type;
  static constexpr bool kReadsX = kValue != Value::kActivated;
  static constexpr bool kReadsZ = kValue != Value::kX;

  static __device__ __forceinline__ float value(float x, float z) {
    if constexpr (kValue == Value::kX) {
      return x;
    } else {
      float derivative;
      const float y = activate<kActivation, T>(z, derivative);
      return kValue == Value::kActivated ? y : __fmul_rn(x, derivative);
    }
  }
};

template <Float8 kFormat>
__device__ __forceinline__ std::uint32_t two_bytes(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE,
                                  kFormat == Float8::kE4M3 ? __NV_E4M3 : __NV_E5M2);
}

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(fabsf(x)); }

__device__ __forceinline__ void raise_amax(unsigned* amax, unsigned found) {
  // The value read may be outdated, and then it is only too small.
  if (found > *static_cast<volatile unsigned*>(amax)) atomicMax(amax, found);
}

// All threads of the warp call it.
__device__ __forceinline__ void add_amax(unsigned mine, unsigned* amax) {
  const unsigned of_warp = __reduce_max_sync(0xffffffffu, mine);
  if (threadIdx.x % 32 == 0) raise_amax(amax, of_warp);
}

struct Arguments {
  const void* x;
  const void* z;
  const float* scaling;
  unsigned* amax;
  std::uint8_t* y;
  std::uint8_t* transposed;
  float* partials;  // of column sums
  std::int64_t rows, columns;
};

template <class From, Float8 kFormat>
__global__ void __launch_bounds__(kThreads) quantize_tile_kernel(const Arguments arguments) {
  using T = typename From::T;
  __shared__ std::uint32_t words[kTileColumns][kStride];
  __shared__ float sums_of_warps[kWarps][kTileColumns];
  __shared__ unsigned amax_of_warps[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int across = thread % kAcross;
  const int group = thread / kAcross;
  const std::int64_t rows = arguments.rows;
  const std::int64_t columns = arguments.columns;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kTileColumns;
  // The last rows come first: they were written last and may still be in the L2 cache. The first
  // rows of the result are then still in the cache when a product begins with them.
  const std::int64_t tile = gridDim.y - 1 - blockIdx.y;
  const std::int64_t first_row = tile * kTileRows;
  const std::int64_t column = first_column + across * kColumns;
  const std::int64_t row = first_row + group * kRows;
  // Extents are multiples of the extents of a thread.
  const bool is_inside = row < rows && column < columns;
  const float scale = arguments.scaling[ops::kScale];

  Floats<kColumns> values[kRows] = {};
  unsigned amax = 0;
  if (is_inside) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t at = (row + r) * columns + column;
      Floats<kColumns> x = {}, z = {};
      if constexpr (From::kReadsX) {
        x = load_floats<kColumns>(static_cast<const T*>(arguments.x) + at);
      }
      if constexpr (From::kReadsZ) {
        z = load_floats<kColumns>(static_cast<const T*>(arguments.z) + at);
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        values[r][i] = From::value(x[i], z[i]);
        amax = max(amax, magnitude(values[r][i]));
      }
    }
  }
  // One access per block, because all blocks access the same address.
  const unsigned of_warp = __reduce_max_sync(0xffffffffu, amax);
  if (thread % 32 == 0) amax_of_warps[thread / 32] = of_warp;

  // Bytes of the thread's rows, four to a word, and of its columns.
  std::uint32_t of_rows[kRows][kColumns / 4];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int w = 0; w < kColumns / 4; ++w) {
      const int i = 4 * w;
      of_rows[r][w] = two_bytes<kFormat>(values[r][i] * scale, values[r][i + 1] * scale) |
                      two_bytes<kFormat>(values[r][i + 2] * scale, values[r][i + 3] * scale) << 16;
    }
  }
  if (arguments.y != nullptr && is_inside) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      *reinterpret_cast<uint2*>(arguments.y + (row + r) * columns + column) =
          make_uint2(of_rows[r][0], of_rows[r][1]);
    }
  }
  if (arguments.transposed != nullptr) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int w = i / 4;
      const unsigned pick = static_cast<unsigned>(i % 4) | static_cast<unsigned>(i % 4 + 4) << 4;
      const std::uint32_t low = __byte_perm(of_rows[0][w], of_rows[1][w], pick);
      const std::uint32_t high = __byte_perm(of_rows[2][w], of_rows[3][w], pick);
      words[across * kColumns + i][group] = __byte_perm(low, high, 0x5410);
    }
  }
  if (arguments.partials != nullptr) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      float sum = values[0][i];
#pragma unroll
      for (int r = 1; r < kRows; ++r) sum += values[r][i];
      sum += __shfl_xor_sync(0xffffffffu, sum, 8);
      sum += __shfl_xor_sync(0xffffffffu, sum, 16);
      if (thread % 32 < kAcross) sums_of_warps[thread / 32][across * kColumns + i] = sum;
    }
  }
  __syncthreads();
  if (arguments.amax != nullptr && thread == 0) {
    unsigned most = 0;
#pragma unroll
    for (const unsigned each : amax_of_warps) most = max(most, each);
    raise_amax(arguments.amax, most);
  }
  if (arguments.transposed != nullptr) {
    constexpr int kPieces = kTileRows / 16;  // of a column
#pragma unroll
    for (int piece = thread; piece < kTileColumns * kPieces; piece += kThreads) {
      const int c = piece / kPieces;
      const int p = piece % kPieces;
      const std::int64_t to_row = first_row + p * 16;
      if (first_column + c >= columns || to_row >= rows) continue;
      const std::uint32_t* const from = &words[c][p * 4];
      *reinterpret_cast<uint4*>(arguments.transposed + (first_column + c) * rows + to_row) =
          make_uint4(from[0], from[1], from[2], from[3]);
    }
  }
  if (arguments.partials != nullptr && thread < kTileColumns && first_column + thread < columns) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += sums_of_warps[warp][thread];
    arguments.partials[tile * columns + first_column + thread] = sum;
  }
}

template <class From>
__device__ __forceinline__ float plain_value(const Arguments& arguments, std::int64_t at) {
  using T = typename From::T;
  float x = 0, z = 0;
  if constexpr (From::kReadsX) x = to_float(static_cast<const T*>(arguments.x)[at]);
  if constexpr (From::kReadsZ) z = to_float(static_cast<const T*>(arguments.z)[at]);
  return From::value(x, z);
}

template <class From, Float8 kFormat>
__global__ void __launch_bounds__(kThreads) quantize_plain_kernel(const Arguments arguments) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool is_inside = at < arguments.rows * arguments.columns;
  const float value = is_inside ? plain_value<From>(arguments, at) : 0.0f;
  if (arguments.amax != nullptr) add_amax(magnitude(value), arguments.amax);
  if (!is_inside) return;
  const auto byte = static_cast<std::uint8_t>(
      two_bytes<kFormat>(value * arguments.scaling[ops::kScale], 0.0f) & 0xffu);
  if (arguments.y != nullptr) arguments.y[at] = byte;
  if (arguments.transposed != nullptr) {
    arguments.transposed[at % arguments.columns * arguments.rows + at / arguments.columns] = byte;
  }
}

// A row of partial sums for every kTileRows rows, as the tiles make them.
template <class From>
__global__ void __launch_bounds__(kThreads) plain_sums_kernel(const Arguments arguments) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= arguments.columns) return;
  const std::int64_t first = std::int64_t{blockIdx.y} * kTileRows;
  float sum = 0;
  for (std::int64_t row = first; row < min(first + kTileRows, arguments.rows); ++row) {
    sum += plain_value<From>(arguments, row * arguments.columns + column);
  }
  arguments.partials[std::int64_t{blockIdx.y} * arguments.columns + column] = sum;
}

// Only the amax, before the scale is known.
template <class From>
__global__ void __launch_bounds__(kThreads) amax_kernel(const Arguments arguments) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  unsigned amax = 0;
  for (std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
       at < arguments.rows * arguments.columns; at += step) {
    amax = max(amax, magnitude(plain_value<From>(arguments, at)));
  }
  add_amax(amax, arguments.amax);
}

__global__ void calibrate_kernel(float* scaling, const float* amax) {
  if (scaling[ops::kScale] == 0.0f) set_scale(scaling, *amax);
}

bool lies_on(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

bool can_be_tiled(const Arguments& arguments) {
  return arguments.rows % 16 == 0 && arguments.columns % kColumns == 0 &&
         lies_on(arguments.x, 16) && lies_on(arguments.z, 16) && lies_on(arguments.y, 8) &&
         lies_on(arguments.transposed, 16) &&
         divide_up(static_cast<std::size_t>(arguments.rows), kTileRows) <= 65535;
}

unsigned blocks_of(std::int64_t count, std::int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

template <class From, Float8 kFormat>
void launch(const Context& context, const Arguments& arguments, const ops::Quantize& call) {
  const std::int64_t elements = arguments.rows * arguments.columns;
  if (call.calibrates) {
    const unsigned blocks = std::min(blocks_of(elements, kThreads), 4096u);
    amax_kernel<From><<<blocks, kThreads, 0, context.stream>>>(arguments);
    calibrate_kernel<<<1, 1, 0, context.stream>>>(data_of<float>(call.scaling),
                                                  data_of<const float>(call.amax));
    check_launch("calibrate");
  }
  const unsigned tiles = blocks_of(arguments.rows, kTileRows);
  if (can_be_tiled(arguments)) {
    const dim3 grid(blocks_of(arguments.columns, kTileColumns), tiles);
    quantize_tile_kernel<From, kFormat><<<grid, kThreads, 0, context.stream>>>(arguments);
    check_launch("quantize");
    return;
  }
  quantize_plain_kernel<From, kFormat>
      <<<blocks_of(elements, kThreads), kThreads, 0, context.stream>>>(arguments);
  check_launch("quantize");
  if (arguments.partials == nullptr) return;
  const dim3 grid(blocks_of(arguments.columns, kThreads), tiles);
  plain_sums_kernel<From><<<grid, kThreads, 0, context.stream>>>(arguments);
  check_launch("column sums of what is quantized");
}

template <class From>
void launch(const Context& context, const Arguments& arguments, const ops::Quantize& call) {
  if (call.format == Float8::kE4M3) {
    launch<From, Float8::kE4M3>(context, arguments, call);
  } else {
    launch<From, Float8::kE5M2>(context, arguments, call);
  }
}

template <class T, Value kValue>
void launch_activation(const Context& context, const Arguments& arguments,
                       const ops::Quantize& call) {
  using enum ops::Activation;
  switch (call.activation) {
    case kGeluTanh:
      return launch<Source<T, kValue, kGeluTanh>>(context, arguments, call);
    case kGeluErf:
      return launch<Source<T, kValue, kGeluErf>>(context, arguments, call);
    case kRelu:
      return launch<Source<T, kValue, kRelu>>(context, arguments, call);
  }
}

}  // namespace

std::size_t quantize_bytes(std::int64_t rows, std::int64_t columns) {
  return divide_up(static_cast<std::size_t>(rows), kTileRows) * static_cast<std::size_t>(columns) *
         sizeof(float);
}

void run(const Context& context, const ops::Quantize& call) {
  const bool has_x = ops::is_given(call.x);
  const Tensor& from = ops::quantized_from(call);
  if (!ops::is_given(from)) return;
  Arguments arguments{.x = data_of<const void>(call.x),
                      .z = data_of<const void>(call.z),
                      .scaling = data_of<const float>(call.scaling),
                      .amax = data_of<unsigned>(call.amax),
                      .y = data_of<std::uint8_t>(call.y),
                      .transposed = data_of<std::uint8_t>(call.transposed),
                      .partials = nullptr,
                      .rows = from.shape()[0],
                      .columns = from.shape()[1]};
  if (ops::is_given(call.dbias)) arguments.partials = reinterpret_cast<float*>(context.workspace);
  with_compute_type(from.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (!ops::is_given(call.z)) {
      launch<Source<T, Value::kX, ops::Activation::kRelu>>(context, arguments, call);
    } else if (!has_x) {
      launch_activation<T, Value::kActivated>(context, arguments, call);
    } else {
      launch_activation<T, Value::kDifferentiated>(context, arguments, call);
    }
  });
  if (arguments.partials == nullptr) return;
  const std::int64_t splits = (arguments.rows + kTileRows - 1) / kTileRows;
  add_partial_sums(context, arguments.partials, splits, call.dbias);
}

}  // namespace lockstep::cuda
