// Tiles of rows in shared memory, and their products by tensor cores (mma.h, device.cuh).
//
// A tile holds rows of kHeadSize elements, each padded by 8 elements. So the 16 bytes that ldmatrix
// reads of eight consecutive rows are in eight different groups of banks. A warp owns kM times 16
// rows. Its sums are float[kM][columns / 8][4]: the fragment C of each block of 16 rows by 8
// columns. Two such blocks side by side are the fragment A of a product over their columns. So
// probabilities enter the second product without leaving their lane.
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/call.cuh"
#include "lockstep/ops/cuda/attention/device.cuh"

namespace lockstep::cuda::attention::mma {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLogE2 = 0.6931471805599453f;

template <int kHeadSize>
inline constexpr int kStride = kHeadSize + 8;

__device__ __forceinline__ int lane_of() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_of() { return static_cast<int>(threadIdx.x) / 32; }
// The position of a lane's elements in a block of 16 by 8: its first row (the other one is 8 below)
// and the first of its two columns.
__device__ __forceinline__ int lane_row() { return lane_of() / 4; }
__device__ __forceinline__ int lane_column() { return lane_of() % 4 * 2; }

// Begins to copy kRows rows of a head. Rows from `rows` on, and masked ones, become zeros.
template <int kRows, int kHeadSize, int kThreads, class T>
__device__ __forceinline__ void load_rows(T* to, const T* from, std::int64_t stride, int rows,
                                          int head_size, const std::uint8_t* mask) {
  constexpr int kPieces = kHeadSize / 8;  // of 16 bytes, in a row
  static_assert(kRows * kPieces % kThreads == 0);
  constexpr int kTurns = kRows * kPieces / kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  bool valid[kTurns];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int place = turn * kThreads + thread;
    const int row = place / kPieces, column = place % kPieces * 8;
    valid[turn] = row < rows && column < head_size && (mask == nullptr || mask[row] != 0);
  }
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int place = turn * kThreads + thread;
    const int row = place / kPieces, column = place % kPieces * 8;
    const T* source = valid[turn] ? from + row * stride + column : from;
    copy_16_async(to + row * kStride<kHeadSize> + column, source, valid[turn]);
  }
}

template <int kM, int kN>
__device__ __forceinline__ void set_zero(float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
    }
  }
}

// sums = the products of the warp's rows, a, with the rows of b.
template <int kHeadSize, int kM, int kN, class T>
__device__ __forceinline__ void multiply_rows(float (&sums)[kM][kN][4], const T* a, const T* b) {
  static_assert(kN % 2 == 0);
  constexpr int kRow = kStride<kHeadSize>;
  const int lane = lane_of();
  const T* a_lane = a + lane % 16 * kRow + lane / 16 * 8;
  const T* b_lane = b + (lane % 8 + lane / 16 * 8) * kRow + lane / 8 % 2 * 8;
  set_zero(sums);
#pragma unroll
  for (int depth = 0; depth < kHeadSize; depth += 16) {
    std::uint32_t left[kM][4];
#pragma unroll
    for (int i = 0; i < kM; ++i) load_matrices(left[i], a_lane + 16 * i * kRow + depth);
#pragma unroll
    for (int j = 0; j < kN; j += 2) {
      std::uint32_t right[4];
      load_matrices(right, b_lane + 8 * j * kRow + depth);
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        multiply_add(sums[i][j], left[i], right[0], right[1], T{});
        multiply_add(sums[i][j + 1], left[i], right[2], right[3], T{});
      }
    }
  }
}

__device__ __forceinline__ std::uint32_t pack(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  memcpy(&bits, &both, sizeof(bits));
  return bits;
}
__device__ __forceinline__ std::uint32_t pack(float low, float high, __half) {
  const __half2 both = __floats2half2_rn(low, high);
  std::uint32_t bits;
  memcpy(&bits, &both, sizeof(bits));
  return bits;
}

// Sums rounded to T, as fragments A.
template <class T, int kM, int kN>
__device__ __forceinline__ void round_to(std::uint32_t (&to)[kM][kN / 2][4],
                                         const float (&from)[kM][kN][4]) {
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int j = 0; j < kN / 2; ++j) {
      to[i][j][0] = pack(from[i][2 * j][0], from[i][2 * j][1], T{});
      to[i][j][1] = pack(from[i][2 * j][2], from[i][2 * j][3], T{});
      to[i][j][2] = pack(from[i][2 * j + 1][0], from[i][2 * j + 1][1], T{});
      to[i][j][3] = pack(from[i][2 * j + 1][2], from[i][2 * j + 1][3], T{});
    }
  }
}

// sums += weights times b: every row of b times its weight.
template <int kHeadSize, int kM, int kDepth, class T>
__device__ __forceinline__ void multiply_columns(float (&sums)[kM][kHeadSize / 8][4],
                                                 const std::uint32_t (&weights)[kM][kDepth][4],
                                                 const T* b) {
  constexpr int kRow = kStride<kHeadSize>;
  const int lane = lane_of();
  const T* b_lane = b + lane % 16 * kRow + lane / 16 * 8;
#pragma unroll
  for (int depth = 0; depth < kDepth; ++depth) {
#pragma unroll
    for (int j = 0; j < kHeadSize / 8; j += 2) {
      std::uint32_t right[4];
      load_matrices_transposed(right, b_lane + 16 * depth * kRow + 8 * j);
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        multiply_add(sums[i][j], weights[i][depth], right[0], right[1], T{});
        multiply_add(sums[i][j + 1], weights[i][depth], right[2], right[3], T{});
      }
    }
  }
}

// Stores the warp's sums, each row times its factor; rows from `rows` on do not exist. The sums
// pass through `staging`, the warp's own rows of a tile that no other warp reads, so that memory is
// written 16 bytes at a time.
template <int kHeadSize, int kM, class T>
__device__ __forceinline__ void store_rows(T* to, std::int64_t stride, int rows, int head_size,
                                           const float (&sums)[kM][kHeadSize / 8][4],
                                           const float (&factors)[kM][2], T* staging) {
  constexpr int kRow = kStride<kHeadSize>;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int j = 0; j < kHeadSize / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        T* at = staging + (16 * i + 8 * half + lane_row()) * kRow + 8 * j + lane_column();
        *reinterpret_cast<std::uint32_t*>(at) =
            pack(sums[i][j][2 * half] * factors[i][half],
                 sums[i][j][2 * half + 1] * factors[i][half], T{});
      }
    }
  }
  __syncwarp();
  constexpr int kPieces = kHeadSize / 8;
#pragma unroll
  for (int at = 0; at < 16 * kM * kPieces; at += 32) {
    const int row = (at + lane_of()) / kPieces, column = (at + lane_of()) % kPieces * 8;
    if (row >= rows || column >= head_size) continue;
    *reinterpret_cast<uint4*>(to + row * stride + column) =
        *reinterpret_cast<const uint4*>(staging + row * kRow + column);
  }
}

// ---- soft caps of scores

// A cap for products, which are still to be multiplied by `scale`. The two factors are 0 without a
// cap.
struct ProductCap {
  float inner = 0;  // scale / cap
  float outer = 0;  // cap / scale

  ProductCap() = default;
  ProductCap(float scale, float cap) {
    if (cap == 0) return;
    inner = scale / cap;
    outer = cap / scale;
  }

  __device__ __forceinline__ float capped(float product) const {
    // tanh(x) = 1 - 2 / (1 + e^(2 x)): an error of about 1e-7 of the cap.
    const float power = fast_exp2(product * inner * (2 * kLog2E));
    return outer * (1 - __fdividef(2.0f, power + 1));
  }
  // The derivative at a capped product; 0 where it is -infinity.
  __device__ __forceinline__ float slope(float capped) const {
    const float share = fmaxf(capped * inner, -1.0f);
    return (1 - share) * (1 + share);
  }
  template <int kM, int kN>
  __device__ __forceinline__ void cap(float (&products)[kM][kN][4]) const {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) products[i][j][e] = capped(products[i][j][e]);
      }
    }
  }
};

// ---- masks, where rows are queries and columns keys

// Bit i % 32 of word i / 32 is set where key + i exists and is not masked.
template <int kKeys>
struct ShownKeys {
  std::uint32_t words[kKeys / 32];

  __device__ __forceinline__ ShownKeys(const Sizes& sizes, const std::uint8_t* mask, int key) {
#pragma unroll
    for (int word = 0; word < kKeys / 32; ++word) {
      const int i = 32 * word + lane_of();
      const bool shown = key + i < sizes.keys && (mask == nullptr || mask[i] != 0);
      words[word] = __ballot_sync(kAllLanes, shown);
    }
  }
  __device__ __forceinline__ bool operator[](int i) const { return words[i / 32] >> (i % 32) & 1; }
};

// Sets the scores of keys that a query does not attend to to -infinity. `row` and `key` are the
// warp's first query and the tile's first key; `mask` begins at this key.
template <int kM, int kN>
__device__ __forceinline__ void hide(float (&scores)[kM][kN][4], const Sizes& sizes,
                                     const std::uint8_t* mask, int row, int key) {
  ShownKeys<8 * kN> shown(sizes, mask, key);
#pragma unroll
  for (auto& word : shown.words) word >>= lane_column();
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      // The first and the last key to attend to, counted from the lane's first column.
      const int query = row + 16 * i + 8 * (e / 2) + lane_row();
      const int first = query + sizes.first - key - lane_column();
      const int last = query + sizes.reach - key - lane_column();
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const int at = 8 * j + e % 2;
        if (at < first || at > last || !shown[at]) scores[i][j][e] = -INFINITY;
      }
    }
  }
}

// Whether hide() has anything to do for that many rows.
__device__ __forceinline__ bool hides(const Sizes& sizes, const std::uint8_t* mask, int row,
                                      int rows, int key, int keys) {
  return mask != nullptr || key + keys > sizes.keys || key + keys - 1 > row + sizes.reach ||
         key < row + rows - 1 + sizes.first;
}

// Whether a query of these rows attends to a key of these.
__device__ __forceinline__ bool meet(const Sizes& sizes, int row, int rows, int key, int keys) {
  return key <= row + rows - 1 + sizes.reach && key + keys - 1 >= row + sizes.first;
}

// ---- dropout of a lane's four elements of a block of 16 by 8: bit e of the result is set where
// element e of the fragment C is kept

// Rows are queries, columns keys. Four keys share a block of random numbers. Two lanes hold two of
// them each, in two rows: one lane generates the numbers of the upper row, the other those of the
// lower.
__device__ __forceinline__ std::uint32_t kept_of_queries(const Keeper& keeper, int query, int key) {
  const int row = query + lane_row();
  if (keeper.in_fours()) {
    const bool odd = lane_of() % 2 != 0;
    const std::uint32_t mine = keeper.four(row + (odd ? 8 : 0), key + lane_of() % 4 / 2 * 4);
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, mine, 1);
    return odd ? other >> 2 | (mine >> 2) << 2 : (mine & 3) | (other & 3) << 2;
  }
  std::uint32_t bits = 0;
#pragma unroll 1
  for (int e = 0; e < 4; ++e) {
    const bool kept = keeper.keeps(row + 8 * (e / 2), key + lane_column() + e % 2);
    bits |= static_cast<std::uint32_t>(kept) << e;
  }
  return bits;
}

// Rows are keys, columns queries. The four keys that share a block of random numbers are rows of
// four lanes. These lanes hold four such groups: two queries, and the keys 8 further for the same
// two. Each lane generates the numbers of one group and receives its bit of all four.
__device__ __forceinline__ std::uint32_t kept_of_keys(const Keeper& keeper, int query, int key) {
  const int column = query + lane_column();
  if (keeper.in_fours()) {
    const int run = lane_row() % 4;
    std::uint32_t runs = keeper.four(column + run % 2, key + lane_row() / 4 * 4 + run / 2 * 8)
                         << (4 * run);
    runs |= __shfl_xor_sync(kAllLanes, runs, 4);
    runs |= __shfl_xor_sync(kAllLanes, runs, 8);
    runs >>= run;
    return (runs & 1) | (runs >> 3 & 2) | (runs >> 6 & 4) | (runs >> 9 & 8);
  }
  std::uint32_t bits = 0;
#pragma unroll 1
  for (int e = 0; e < 4; ++e) {
    const bool kept = keeper.keeps(column + e % 2, key + lane_row() + 8 * (e / 2));
    bits |= static_cast<std::uint32_t>(kept) << e;
  }
  return bits;
}

// ---- choice of a kernel

// Calls f with the padded head size as a type.
template <class F>
void with_head_size(std::int64_t head_size, F&& f) {
  if (head_size <= 32) return f(std::integral_constant<int, 32>{});
  if (head_size <= 64) return f(std::integral_constant<int, 64>{});
  if (head_size <= 96) return f(std::integral_constant<int, 96>{});
  f(std::integral_constant<int, 128>{});
}
// What is done to scores and probabilities. Dropout of capped ones is left to plain.h.
enum class Scores { kPlain, kDropped, kCapped, kBiased, kBiasedDropped };
constexpr bool are_biased(Scores scores) {
  return scores == Scores::kBiased || scores == Scores::kBiasedDropped;
}
constexpr bool are_dropped(Scores scores) {
  return scores == Scores::kDropped || scores == Scores::kBiasedDropped;
}
template <Scores kScores>
using ScoresTag = std::integral_constant<Scores, kScores>;
template <class Call, class F>
void with_scores(const Call& call, F&& f) {
  const bool biased = call.shape.distances > 0, dropped = call.dropout.probability > 0;
  if (biased && dropped) return f(ScoresTag<Scores::kBiasedDropped>{});
  if (biased) return f(ScoresTag<Scores::kBiased>{});
  if (dropped) return f(ScoresTag<Scores::kDropped>{});
  if (call.softcap > 0) return f(ScoresTag<Scores::kCapped>{});
  f(ScoresTag<Scores::kPlain>{});
}
template <class F>
void with_half_type(DType dtype, F&& f) {
  if (dtype == DType::kBF16) return f(__nv_bfloat16{});
  f(__half{});
}

}  // namespace lockstep::cuda::attention::mma
