#include "lockstep/ops/cuda/attention/decode.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/rotary_angles.cuh"
#include "lockstep/ops/cuda/elementwise/soft_cap.cuh"

namespace lockstep::cuda::attention {

static_assert(kMostDecodeHead / 2 <= ops::kMostSlowedPairs);

namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 4;  // keys that are loaded at once
constexpr int kPiece = 8;  // elements of a head that a lane holds
constexpr int kMostRows = 8;
constexpr int kLeastKeys = 64;  // of a part
constexpr int kMostParts = 64;

// The result of a block for a query head in one part of the keys.
struct Found {
  float most;
  float total;
};

template <class T>
struct Call {
  const T* packed;
  T* cache;
  T* out;
  const std::int32_t* lengths;
  int heads;
  int kv_heads;
  int group;  // query heads that share a key head
  int row_blocks;
  int head_size;
  int positions;
  int parts;   // at most
  int window;  // at least 1
  float scale;
  float softcap;  // 0: none
  bool rotary;
  int turned;  // the elements of a head that turn
  RotaryTurns turns;
  Found* found;  // [batch, heads, parts]
  float* sums;   // [batch, heads, parts, head_size]
  unsigned* tickets;
  Faults* faults;
};

template <class T, bool kVectors>
__device__ __forceinline__ Floats<kPiece> load_piece(const T* from, int count) {
  Floats<kPiece> piece = {};
  if (count <= 0) return piece;
  if constexpr (kVectors) {
    piece = load_floats<kPiece>(from);
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i < count) piece[i] = to_float(from[i]);
    }
  }
  return piece;
}

// kLanes lanes, a team, take one key at a time; the teams of a block take keys in turn.
template <int kLanes, int kRows>
struct Shared {
  static constexpr int kTeams = kThreads / kLanes;
  static constexpr int kWidth = kLanes * kPiece;
  float2 rotations[kWidth / 2];
  float q[kRows][kWidth];
  float k[kWidth];  // of the newest token
  float v[kWidth];
  Found found[kTeams][kRows];
  float sums[kTeams][kRows][kWidth];
  bool is_last;
};

// Loads queries, key and value of the token into shared memory, rotates them, and rounds them as
// they are stored.
template <class T, int kLanes, int kRows>
__device__ __forceinline__ void load_token(const Call<T>& call, Shared<kLanes, kRows>& shared,
                                           int sequence, int kv_head, int first_row, int rows,
                                           int length) {
  const int size = call.head_size, half = call.turned / 2, rest = size - call.turned;
  const T* packed =
      call.packed + static_cast<std::int64_t>(sequence) * (call.heads + 2 * call.kv_heads) * size;
  const auto source = [&](int row) {  // row `rows` is the key
    return row < rows ? packed + (kv_head * call.group + first_row + row) * size
                      : packed + (call.heads + kv_head) * size;
  };
  const auto target = [&](int row) { return row < rows ? shared.q[row] : shared.k; };
  const T* value = packed + (call.heads + call.kv_heads + kv_head) * size;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
    shared.v[i] = to_float(value[i]);
  }
  if (!call.rotary) {
    for (int i = static_cast<int>(threadIdx.x); i < (rows + 1) * size; i += kThreads) {
      target(i / size)[i % size] = to_float(source(i / size)[i % size]);
    }
    __syncthreads();
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    const double angle = static_cast<double>(length) * rotary_frequency(call.turns, i, half);
    const float2 rotation = cosine_and_sine(angle);
    shared.rotations[i] =
        make_float2(call.turns.amplitude * rotation.x, call.turns.amplitude * rotation.y);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < (rows + 1) * half; i += kThreads) {
    const int row = i / half, pair = i % half;
    const float2 rotation = shared.rotations[pair];
    const float a = to_float(source(row)[pair]), b = to_float(source(row)[pair + half]);
    target(row)[pair] = to_float(from_float<T>(a * rotation.x - b * rotation.y));
    target(row)[pair + half] = to_float(from_float<T>(a * rotation.y + b * rotation.x));
  }
  for (int i = static_cast<int>(threadIdx.x); i < (rows + 1) * rest; i += kThreads) {
    const int row = i / rest, element = call.turned + i % rest;
    target(row)[element] = to_float(source(row)[element]);
  }
  __syncthreads();
}

template <class T, int kLanes, int kRows, bool kVectors>
__global__ void __launch_bounds__(kThreads) decode_kernel(Call<T> call) {
  using Memory = Shared<kLanes, kRows>;
  __shared__ Memory shared;
  start_next();
  wait_for_previous();
  const int part = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y) / call.row_blocks;
  const int first_row = static_cast<int>(blockIdx.y) % call.row_blocks * kRows;
  const auto sequence = static_cast<int>(blockIdx.z);
  const int rows = min(kRows, call.group - first_row);
  const int length = call.lengths[sequence];
  if (length < 0 || length >= call.positions) {
    const bool reports = threadIdx.x == 0 && part == 0 && blockIdx.y == 0;
    if (reports) atomicMin(&call.faults->type, fault(sequence, length));
    return;
  }
  const int keys = length + 1;
  const int seen = min(keys, call.window);  // the last of them
  const int fair = (seen + call.parts - 1) / call.parts;
  const int keys_per_part = (fair + kLeastKeys - 1) / kLeastKeys * kLeastKeys;
  const int parts = (seen + keys_per_part - 1) / keys_per_part;
  if (part >= parts) return;

  load_token<T, kLanes, kRows>(call, shared, sequence, kv_head, first_row, rows, length);
  const int size = call.head_size;
  const int team = static_cast<int>(threadIdx.x) / kLanes;
  const int column = static_cast<int>(threadIdx.x) % kLanes * kPiece;
  const int mine = size - column;  // elements of a head from this lane on; may be 0 or less
  const std::int64_t stride = 2 * static_cast<std::int64_t>(call.kv_heads) * size;
  T* cache = call.cache + static_cast<std::int64_t>(sequence) * call.positions * stride +
             static_cast<std::int64_t>(kv_head) * size;
  const std::int64_t to_values = static_cast<std::int64_t>(call.kv_heads) * size;

  float q[kRows][kPiece], sums[kRows][kPiece], most[kRows], total[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    most[r] = -INFINITY;
    total[r] = 0;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      q[r][i] = r < rows && i < mine ? shared.q[r][column + i] * call.scale : 0.0f;
      sums[r][i] = 0;
    }
  }

  const int first = keys - seen + part * keys_per_part;
  const int end = min(first + keys_per_part, keys);
  for (int base = first; base < end; base += Memory::kTeams * kAhead) {
    Floats<kPiece> k[kAhead], v[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int key = base + u * Memory::kTeams + team;
      const int count = key < length && key < end ? mine : 0;
      const T* from = cache + key * stride + column;
      k[u] = load_piece<T, kVectors>(from, count);
      v[u] = load_piece<T, kVectors>(from + to_values, count);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (base + u * Memory::kTeams + team == length) {
#pragma unroll
        for (int i = 0; i < kPiece; ++i) {
          k[u][i] = i < mine ? shared.k[column + i] : 0.0f;
          v[u][i] = i < mine ? shared.v[column + i] : 0.0f;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float scores[kAhead];
      float now = most[r];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        float score = 0;
#pragma unroll
        for (int i = 0; i < kPiece; ++i) score = fmaf(q[r][i], k[u][i], score);
        score = warp_sum<kLanes>(score);
        if (call.softcap > 0) score = soft_cap(score, call.softcap);
        scores[u] = base + u * Memory::kTeams + team < end ? score : -INFINITY;
        now = fmaxf(now, scores[u]);
      }
      const float from = now == -INFINITY ? 0.0f : now;
      const float shrink = expf(most[r] - from);
      most[r] = now;
      total[r] *= shrink;
#pragma unroll
      for (int i = 0; i < kPiece; ++i) sums[r][i] *= shrink;
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const float weight = expf(scores[u] - from);
        total[r] += weight;
#pragma unroll
        for (int i = 0; i < kPiece; ++i) sums[r][i] = fmaf(weight, v[u][i], sums[r][i]);
      }
    }
  }

  // The newest key belongs to the last part; one block of that part stores it.
  if (part == parts - 1 && first_row == 0) {
    T* added = cache + static_cast<std::int64_t>(length) * stride;
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
      added[i] = from_float<T>(shared.k[i]);
      added[to_values + i] = from_float<T>(shared.v[i]);
    }
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (column == 0) shared.found[team][r] = {most[r], total[r]};
#pragma unroll
    for (int i = 0; i < kPiece; ++i) shared.sums[team][r][column + i] = sums[r][i];
  }
  __syncthreads();
  const auto head_of = [&](int row) { return kv_head * call.group + first_row + row; };
  const auto place_of = [&](int row) {
    return (static_cast<std::int64_t>(sequence) * call.heads + head_of(row)) * call.parts;
  };
  const auto out_of = [&](int row) {
    return call.out + (static_cast<std::int64_t>(sequence) * call.heads + head_of(row)) * size;
  };
  for (int i = static_cast<int>(threadIdx.x); i < rows * size; i += kThreads) {
    const int r = i / size, element = i % size;
    Found all{-INFINITY, 0};
    for (int t = 0; t < Memory::kTeams; ++t) all.most = fmaxf(all.most, shared.found[t][r].most);
    float sum = 0;
    for (int t = 0; t < Memory::kTeams; ++t) {
      const float weight = expf(shared.found[t][r].most - all.most);
      all.total += weight * shared.found[t][r].total;
      sum += weight * shared.sums[t][r][element];
    }
    if (parts == 1) {
      out_of(r)[element] = from_float<T>(sum / all.total);
    } else {
      call.sums[(place_of(r) + part) * size + element] = sum;
      if (element == 0) call.found[place_of(r) + part] = all;
    }
  }
  if (parts == 1) return;

  unsigned* ticket = call.tickets + static_cast<std::int64_t>(sequence) * gridDim.y + blockIdx.y;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.is_last = atomicAdd(ticket, 1u) == static_cast<unsigned>(parts - 1);
    if (shared.is_last) *ticket = 0;
  }
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence();
  for (int i = static_cast<int>(threadIdx.x); i < rows * size; i += kThreads) {
    const int r = i / size, element = i % size;
    const auto* found = reinterpret_cast<const float2*>(call.found + place_of(r));
    float all_most = -INFINITY;
    for (int p = 0; p < parts; ++p) all_most = fmaxf(all_most, __ldcg(found + p).x);
    float all_total = 0, sum = 0;
    for (int p = 0; p < parts; ++p) {
      const float2 one = __ldcg(found + p);
      const float weight = expf(one.x - all_most);
      all_total += weight * one.y;
      sum = fmaf(weight, __ldcg(call.sums + (place_of(r) + p) * size + element), sum);
    }
    out_of(r)[element] = from_float<T>(sum / all_total);
  }
}

int rows_of_block(std::int64_t group) { return group <= 1 ? 1 : group <= 4 ? 4 : kMostRows; }

std::int64_t most_parts(std::int64_t positions) {
  return std::clamp<std::int64_t>((positions + kLeastKeys - 1) / kLeastKeys, 1, kMostParts);
}

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t found_bytes(std::int64_t batch, std::int64_t heads, std::int64_t positions) {
  return padded(static_cast<std::size_t>(batch * heads * most_parts(positions)) * sizeof(Found));
}

// Calls f with the number of lanes per head and of query heads per block, as types.
template <class F>
void with_team(std::int64_t head_size, int rows, F&& f) {
  const auto with_rows = [&]<int kLanes>(std::integral_constant<int, kLanes> lanes) {
    if (rows == 1) return f(lanes, std::integral_constant<int, 1>{});
    if (rows == 4) return f(lanes, std::integral_constant<int, 4>{});
    f(lanes, std::integral_constant<int, kMostRows>{});
  };
  if (head_size <= 8 * kPiece) return with_rows(std::integral_constant<int, 8>{});
  if (head_size <= 16 * kPiece) return with_rows(std::integral_constant<int, 16>{});
  with_rows(std::integral_constant<int, 32>{});
}

}  // namespace

std::int64_t decode_tickets(const ops::DecodeAttention& call) {
  const std::int64_t group = call.heads / call.kv_heads;
  const std::int64_t rows = rows_of_block(group);
  return call.packed.shape()[0] * call.kv_heads * ((group + rows - 1) / rows);
}

void run_decode(const Context& context, const ops::DecodeAttention& call) {
  const std::int64_t batch = call.packed.shape()[0];
  const std::int64_t positions = call.cache.shape()[1];
  if (batch == 0) return;
  const std::int64_t group = call.heads / call.kv_heads;
  const std::int64_t window = call.window > 0 ? std::min(call.window, positions) : positions;
  const std::int64_t parts = most_parts(window);
  const std::int64_t turned = call.rotary_size > 0 ? call.rotary_size : call.head_size;
  with_compute_type(call.packed.dtype(), [&]<class T>(TypeTag<T>) {
    // Shapes that do not fit vectors use one generic kernel.
    const bool vectors = call.head_size % kPiece == 0 && allows_packs<T, kPiece>(call.cache);
    const int rows = vectors ? rows_of_block(group) : kMostRows;
    const std::int64_t row_blocks = (group + rows - 1) / rows;
    const Call<T> arguments{.packed = data_of<const T>(call.packed),
                            .cache = data_of<T>(call.cache),
                            .out = data_of<T>(call.out),
                            .lengths = data_of<const std::int32_t>(call.lengths),
                            .heads = static_cast<int>(call.heads),
                            .kv_heads = static_cast<int>(call.kv_heads),
                            .group = static_cast<int>(group),
                            .row_blocks = static_cast<int>(row_blocks),
                            .head_size = static_cast<int>(call.head_size),
                            .positions = static_cast<int>(positions),
                            .parts = static_cast<int>(parts),
                            .window = static_cast<int>(window),
                            .scale = call.scale,
                            .softcap = call.softcap,
                            .rotary = call.rotary,
                            .turned = static_cast<int>(turned),
                            .turns = turns_of(call),
                            .found = reinterpret_cast<Found*>(context.workspace),
                            .sums = reinterpret_cast<float*>(
                                context.workspace + found_bytes(batch, call.heads, positions)),
                            .tickets = context.tickets,
                            .faults = context.faults};
    const dim3 blocks(static_cast<unsigned>(parts),
                      static_cast<unsigned>(call.kv_heads * row_blocks),
                      static_cast<unsigned>(batch));
    const auto launch = [&](auto* kernel) {
      launch_overlapped<Call<T>>(context, "decode_attention", kernel, blocks, kThreads, 0,
                                 arguments);
    };
    if (!vectors) return launch(decode_kernel<T, 32, kMostRows, false>);
    with_team(call.head_size, rows,
              [&]<int kLanes, int kRows>(std::integral_constant<int, kLanes>,
                                         std::integral_constant<int, kRows>) {
                launch(decode_kernel<T, kLanes, kRows, true>);
              });
  });
}

}  // namespace lockstep::cuda::attention

namespace lockstep::cuda {

std::size_t decode_attention_scratch(const ops::AttentionShape& shape) {
  const auto sums = static_cast<std::size_t>(shape.batch * shape.heads *
                                             attention::most_parts(shape.keys) * shape.head_size);
  return attention::found_bytes(shape.batch, shape.heads, shape.keys) +
         attention::padded(sums * sizeof(float));
}

}  // namespace lockstep::cuda
