// A block computes a tile of 64 x 64 elements of D in steps of 16 along k. Its threads load 64 x 16
// elements of A and of B into shared memory as f32; neighbouring threads read neighbouring
// addresses in either layout. Each thread accumulates products for 4 x 4 elements, which are 16
// apart in both directions. Every sum runs along k in order.
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/linear/plain_matmul.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kSide = 16;             // threads along a tile
constexpr int kEach = kTile / kSide;  // elements of a thread in a direction
constexpr int kThreads = kSide * kSide;

using TilePart = float[kDepth][kTile + 1];

template <class T, class Out>
struct Arguments {
  std::int64_t m, n, k, lda, ldb, ldd;
  bool a_along_k, b_along_k;  // neighbours in memory are neighbours in k
  const T* a;
  const T* b;
  const Out* c;  // may be null, or d
  Out* d;
  const Out* bias;  // may be null
};

// Loads the part of a matrix from `first` and `first_k` on; zeros beyond its end.
template <class T>
__device__ __forceinline__ void load_part(TilePart& part, const T* matrix, std::int64_t leading,
                                          bool along_k, std::int64_t first, std::int64_t extent,
                                          std::int64_t first_k, std::int64_t k) {
#pragma unroll
  for (int round = 0; round < kTile * kDepth / kThreads; ++round) {
    const int index = static_cast<int>(threadIdx.x) + round * kThreads;
    const int depth = along_k ? index % kDepth : index / kTile;
    const int across = along_k ? index / kDepth : index % kTile;
    const std::int64_t i = first + across;
    const std::int64_t at_k = first_k + depth;
    float value = 0;
    if (i < extent && at_k < k) {
      value = to_float(matrix[along_k ? i * leading + at_k : at_k * leading + i]);
    }
    part[depth][across] = value;
  }
}

template <class T, class Out>
__global__ void __launch_bounds__(kThreads) plain_matmul_kernel(const Arguments<T, Out> p) {
  __shared__ TilePart a_part;
  __shared__ TilePart b_part;
  const std::int64_t tiles = (p.m + kTile - 1) / kTile;
  const std::int64_t first_m = blockIdx.x % tiles * kTile;
  const std::int64_t first_n = blockIdx.x / tiles * kTile;
  const int x = static_cast<int>(threadIdx.x) % kSide;  // along m, where D is contiguous
  const int y = static_cast<int>(threadIdx.x) / kSide;

  float sums[kEach][kEach] = {};
  for (std::int64_t first_k = 0; first_k < p.k; first_k += kDepth) {
    load_part(a_part, p.a, p.lda, p.a_along_k, first_m, p.m, first_k, p.k);
    load_part(b_part, p.b, p.ldb, p.b_along_k, first_n, p.n, first_k, p.k);
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      float a[kEach], b[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) a[i] = a_part[depth][x + i * kSide];
#pragma unroll
      for (int j = 0; j < kEach; ++j) b[j] = b_part[depth][y + j * kSide];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) sums[j][i] = fmaf(a[i], b[j], sums[j][i]);
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const std::int64_t at_n = first_n + y + j * kSide;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t at_m = first_m + x + i * kSide;
      if (at_n >= p.n || at_m >= p.m) continue;
      const std::int64_t at = at_n * p.ldd + at_m;
      float value = sums[j][i];
      if (p.bias != nullptr) value += to_float(p.bias[at_m]);
      if (p.c != nullptr) value += to_float(p.c[at]);
      p.d[at] = from_float<Out>(value);
    }
  }
}

template <class T, class Out>
void launch(const Context& context, const Product& product, const Operands& operands) {
  const Arguments<T, Out> arguments{
      product.m,
      product.n,
      product.k,
      product.lda,
      product.ldb,
      product.ldd,
      product.transpose_a,
      !product.transpose_b,
      static_cast<const T*>(operands.a),
      static_cast<const T*>(operands.b),
      product.adds && !operands.c_is_zero ? static_cast<const Out*>(operands.c) : nullptr,
      static_cast<Out*>(operands.d),
      product.epilogue == Epilogue::kBias ? static_cast<const Out*>(operands.bias) : nullptr};
  const std::size_t blocks = divide_up(static_cast<std::size_t>(product.m), kTile) *
                             divide_up(static_cast<std::size_t>(product.n), kTile);
  plain_matmul_kernel<T, Out>
      <<<static_cast<unsigned>(blocks), kThreads, 0, context.stream>>>(arguments);
  check_launch("plain_matmul");
}

}  // namespace

void plain_matmul(const Context& context, const Product& product, const Operands& operands) {
  if (product.m == 0 || product.n == 0) return;
  with_compute_type(product.input, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (product.output == product.input) return launch<T, T>(context, product, operands);
    launch<T, float>(context, product, operands);
  });
}

}  // namespace lockstep::cuda
