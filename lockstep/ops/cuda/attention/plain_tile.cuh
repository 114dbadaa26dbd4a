// Products of tiles of 64 rows in f32, from shared memory (plain.h).
//
// The 256 threads of a block form a square of 16 by 16. Thread (x, y) holds of a tile of scores
// rows 4 y to 4 y + 3 and columns x, x + 16, x + 32 and x + 48; of a tile of sums, 64 rows by 64
// columns of a head, the same rows and columns 4 x to 4 x + 3. Rows in shared memory are padded by
// 4 floats, so that threads that read 16 bytes each of eight consecutive rows use all 32 banks.
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/call.cuh"
#include "lockstep/ops/cuda/attention/device.cuh"

namespace lockstep::cuda::attention::plain {

inline constexpr int kSide = 64;
inline constexpr int kThreads = 256;
inline constexpr int kDepth = 32;  // elements of a head that are multiplied at a time

struct Shared {
  union {
    struct {
      float a[kSide][kDepth + 4];
      float b[kSide][kDepth + 4];
    } rows;                           // for scores
    float columns[kSide][kSide + 4];  // for sums
  };
  float weights[kSide][kSide + 4];
  float log_sum[kSide];
  float delta[kSide];
};
__device__ __forceinline__ Shared& shared() { return *reinterpret_cast<Shared*>(dynamic_shared()); }

__device__ __forceinline__ int thread_x() { return static_cast<int>(threadIdx.x) % 16; }
__device__ __forceinline__ int thread_y() { return static_cast<int>(threadIdx.x) / 16; }
__device__ __forceinline__ int tile_row(int i) { return 4 * thread_y() + i; }
__device__ __forceinline__ int tile_column(int j) { return thread_x() + 16 * j; }

// Up to 64 rows of a head.
template <class T>
struct Strip {
  const T* first = nullptr;  // of row 0
  std::int64_t stride = 0;
  int rows = 0;
  int head_size = 0;
  const std::uint8_t* mask = nullptr;  // optional: rows with 0 count as zeros
  bool in_fours = false;               // whether rows may be read four elements at a time

  __device__ __forceinline__ bool has(int row, int column) const {
    return row < rows && column < head_size && (mask == nullptr || mask[row] != 0);
  }
};

__device__ __forceinline__ float4 load_four(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
template <class T>
__device__ __forceinline__ float4 load_four(const T* from) {
  static_assert(sizeof(T) == 2);
  const uint2 packed = *reinterpret_cast<const uint2*>(from);
  T x[4];
  memcpy(x, &packed, sizeof(packed));
  return make_float4(to_float(x[0]), to_float(x[1]), to_float(x[2]), to_float(x[3]));
}

// kColumns columns of a strip from `column` on, as floats; zeros outside.
template <int kColumns, class T>
__device__ __forceinline__ void load(float (&to)[kSide][kColumns + 4], const Strip<T>& from,
                                     int column) {
  if (from.in_fours) {
#pragma unroll
    for (int at = 0; at < kSide * kColumns / 4; at += kThreads) {
      const int place = at + static_cast<int>(threadIdx.x);
      const int row = place / (kColumns / 4), i = place % (kColumns / 4) * 4;
      float4 x = make_float4(0, 0, 0, 0);
      if (from.has(row, column + i)) x = load_four(from.first + row * from.stride + column + i);
      *reinterpret_cast<float4*>(&to[row][i]) = x;
    }
    return;
  }
#pragma unroll 4
  for (int at = 0; at < kSide * kColumns; at += kThreads) {
    const int place = at + static_cast<int>(threadIdx.x);
    const int row = place / kColumns, i = place % kColumns;
    to[row][i] =
        from.has(row, column + i) ? to_float(from.first[row * from.stride + column + i]) : 0.0f;
  }
}

// sums = the products of rows of a with rows of b. Begins with a barrier, after which shared memory
// may be overwritten.
template <class T>
__device__ __forceinline__ void multiply_rows(float (&sums)[4][4], const Strip<T>& a,
                                              const Strip<T>& b) {
  auto& rows = shared().rows;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] = 0;
  }
#pragma unroll 1
  for (int column = 0; column < a.head_size; column += kDepth) {
    __syncthreads();
    load<kDepth>(rows.a, a, column);
    load<kDepth>(rows.b, b, column);
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kDepth; depth += 4) {
      float4 x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = load_four(&rows.a[tile_row(i)][depth]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 y = load_four(&rows.b[tile_column(j)][depth]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[i][j] = fmaf(x[i].x, y.x, sums[i][j]);
          sums[i][j] = fmaf(x[i].y, y.y, sums[i][j]);
          sums[i][j] = fmaf(x[i].z, y.z, sums[i][j]);
          sums[i][j] = fmaf(x[i].w, y.w, sums[i][j]);
        }
      }
    }
  }
}

__device__ __forceinline__ void store_weights(const float (&weights)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) shared().weights[tile_row(i)][tile_column(j)] = weights[i][j];
  }
}

// sums += the stored weights times 64 columns of b from each of kParts places on. Begins with a
// barrier, after which the weights of all threads are stored.
template <int kParts, class T>
__device__ __forceinline__ void multiply_columns(float (&sums)[kParts][4][4], const Strip<T>& b,
                                                 int column) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    __syncthreads();
    load<kSide>(shared().columns, b, column + part * kSide);
    __syncthreads();
#pragma unroll 4
    for (int depth = 0; depth < kSide; depth += 4) {
      float4 x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = load_four(&shared().weights[tile_row(i)][depth]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float4 y = load_four(&shared().columns[depth + k][4 * thread_x()]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float weight = k == 0 ? x[i].x : k == 1 ? x[i].y : k == 2 ? x[i].z : x[i].w;
          sums[part][i][0] = fmaf(weight, y.x, sums[part][i][0]);
          sums[part][i][1] = fmaf(weight, y.y, sums[part][i][1]);
          sums[part][i][2] = fmaf(weight, y.z, sums[part][i][2]);
          sums[part][i][3] = fmaf(weight, y.w, sums[part][i][3]);
        }
      }
    }
  }
}

// Stores rows of sums, each times its factor, into `rows` rows of a head.
template <int kParts, class T>
__device__ __forceinline__ void store(T* to, std::int64_t stride, int rows, int head_size,
                                      int column, const float (&sums)[kParts][4][4],
                                      const float (&factors)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = tile_row(i);
    if (row >= rows) break;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = column + part * kSide + 4 * thread_x() + j;
        if (at < head_size) to[row * stride + at] = from_float<T>(sums[part][i][j] * factors[i]);
      }
    }
  }
}

template <int kParts>
__device__ __forceinline__ void set_zero(float (&sums)[kParts][4][4]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[part][i][j] = 0;
    }
  }
}

// Calls f with the columns of a head per block, in units of 64, as a type. Several blocks share a
// wider head, and each computes all scores.
template <class F>
void with_parts(std::int64_t head_size, F&& f) {
  if (head_size <= kSide) return f(std::integral_constant<int, 1>{});
  f(std::integral_constant<int, 2>{});
}

// Calls f with whether scores have a bias by distance, as a type.
template <class F>
void with_bias(const ops::AttentionShape& shape, F&& f) {
  if (shape.distances > 0) return f(std::true_type{});
  f(std::false_type{});
}

}  // namespace lockstep::cuda::attention::plain
