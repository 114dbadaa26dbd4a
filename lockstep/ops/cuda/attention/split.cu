#include "lockstep/ops/cuda/attention/split.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/ops/cuda/attention/call.cuh"
#include "lockstep/ops/cuda/attention/device.cuh"

namespace lockstep::cuda::attention::split {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 4;  // keys that are loaded at once
constexpr int kMostRows = 8;
constexpr std::int64_t kRowsAccepted = 16;
constexpr std::int64_t kLeastKeys = 256;  // of a part
constexpr std::int64_t kMostParts = 64;

// The result of a block for a row (a query of a head) in one part of the keys.
struct Found {
  float most = 0;
  float total = 0;
};

template <class T>
struct Call {
  Sizes sizes;
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  const std::uint8_t* mask = nullptr;
  float* log_sum = nullptr;
  float scale = 1;
  int parts = 1;
  int keys_per_part = 0;
  Found* found = nullptr;  // [parts, batch, heads, queries]
  float* sums = nullptr;   // [parts, batch, heads, queries, head_size]
};

// A lane holds one vector of 16 bytes of every row.
template <class T>
inline constexpr int kPiece = 16 / static_cast<int>(sizeof(T));

template <class T>
__device__ __forceinline__ void load_piece(float (&to)[kPiece<T>], const T* from, bool valid) {
  uint4 packed = make_uint4(0, 0, 0, 0);
  if (valid) packed = *reinterpret_cast<const uint4*>(from);
  T x[kPiece<T>];
  memcpy(x, &packed, sizeof(packed));
#pragma unroll
  for (int i = 0; i < kPiece<T>; ++i) to[i] = to_float(x[i]);
}

// kLanes lanes, a team, take one key at a time; the teams of a block take keys in turn.
template <class T, int kLanes, int kRows>
struct Team {
  static constexpr int kTeams = kThreads / kLanes;
  static constexpr int kWidth = kLanes * kPiece<T>;
  struct Shared {
    Found found[kTeams][kRows];
    float sums[kTeams][kRows][kWidth];
  };
};

template <class T, int kLanes, int kRows>
__global__ void __launch_bounds__(kThreads) split_kernel(Call<T> call) {
  using Teams = Team<T, kLanes, kRows>;
  constexpr int kSize = kPiece<T>;
  const Sizes& sizes = call.sizes;
  const int rows = sizes.queries * sizes.group;  // row i is query i / group of head i % group
  const int row_blocks = tiles_of(rows, kRows);
  unsigned at = blockIdx.x;
  const int part = static_cast<int>(at % call.parts);
  at /= call.parts;
  const int first_row = static_cast<int>(at % row_blocks) * kRows;
  at /= row_blocks;
  const int kv_head = static_cast<int>(at % sizes.kv_heads);
  const int sequence = static_cast<int>(at / sizes.kv_heads);
  const int team = static_cast<int>(threadIdx.x) / kLanes;
  const int column = static_cast<int>(threadIdx.x) % kLanes * kSize;
  const bool holds = column < sizes.head_size;

  float q[kRows][kSize], sums[kRows][kSize], most[kRows], total[kRows];
  int from[kRows], last[kRows];  // the keys that the row attends to
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool there = first_row + r < rows;
    const int query = (first_row + r) / sizes.group;
    const int head = kv_head * sizes.group + (first_row + r) % sizes.group;
    const std::int64_t q_row = static_cast<std::int64_t>(sequence) * sizes.queries + query;
    load_piece<T>(q[r], call.q.at(q_row, head, sizes.head_size) + column, there && holds);
    from[r] = query + sizes.first;
    last[r] = there ? query + sizes.reach : -1;
    most[r] = -INFINITY;
    total[r] = 0;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      q[r][i] *= call.scale;
      sums[r][i] = 0;
    }
  }

  const std::int64_t key_row = static_cast<std::int64_t>(sequence) * sizes.keys;
  const T* k_from = call.k.at(key_row, kv_head, sizes.head_size) + column;
  const T* v_from = call.v.at(key_row, kv_head, sizes.head_size) + column;
  const std::uint8_t* mask = mask_at(call.mask, sizes, sequence, 0);
  const int first = first_seen(sizes, 0) + part * call.keys_per_part;
  const int seen = keys_seen(sizes, sizes.queries);
  const int end = min(first + call.keys_per_part, seen);
  for (int key = first; key < end; key += Teams::kTeams * kAhead) {
    float k[kAhead][kSize], v[kAhead][kSize];
    bool shown[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int mine = key + u * Teams::kTeams + team;
      shown[u] = mine < end && (mask == nullptr || mask[mine] != 0);
      load_piece<T>(k[u], k_from + mine * call.k.stride, shown[u] && holds);
      load_piece<T>(v[u], v_from + mine * call.v.stride, shown[u] && holds);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float scores[kAhead];
      float now = most[r];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        float score = 0;
#pragma unroll
        for (int i = 0; i < kSize; ++i) score = fmaf(q[r][i], k[u][i], score);
#pragma unroll
        for (int apart = kLanes / 2; apart > 0; apart /= 2) {
          score += __shfl_xor_sync(kAllLanes, score, apart);
        }
        const int mine = key + u * Teams::kTeams + team;
        const bool sees = shown[u] && mine >= from[r] && mine <= last[r];
        scores[u] = sees ? score : -INFINITY;
        now = fmaxf(now, scores[u]);
      }
      const float base = now == -INFINITY ? 0.0f : now;
      const float shrink = expf(most[r] - base);
      most[r] = now;
      total[r] *= shrink;
#pragma unroll
      for (int i = 0; i < kSize; ++i) sums[r][i] *= shrink;
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const float weight = expf(scores[u] - base);
        total[r] += weight;
#pragma unroll
        for (int i = 0; i < kSize; ++i) sums[r][i] = fmaf(weight, v[u][i], sums[r][i]);
      }
    }
  }

  auto& shared = *reinterpret_cast<typename Teams::Shared*>(dynamic_shared());
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (column == 0) shared.found[team][r] = {most[r], total[r]};
#pragma unroll
    for (int i = 0; i < kSize; ++i) shared.sums[team][r][column + i] = sums[r][i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * Teams::kWidth; i += kThreads) {
    const int r = i / Teams::kWidth, element = i % Teams::kWidth;
    if (first_row + r >= rows || element >= sizes.head_size) continue;
    Found all{-INFINITY, 0};
    for (int t = 0; t < Teams::kTeams; ++t) all.most = fmaxf(all.most, shared.found[t][r].most);
    const float base = all.most == -INFINITY ? 0.0f : all.most;
    float sum = 0;
    for (int t = 0; t < Teams::kTeams; ++t) {
      const float weight = expf(shared.found[t][r].most - base);
      all.total += weight * shared.found[t][r].total;
      sum += weight * shared.sums[t][r][element];
    }
    const int query = (first_row + r) / sizes.group;
    const int head = kv_head * sizes.group + (first_row + r) % sizes.group;
    const std::int64_t places = query_place(sizes, sizes.batch, 0, 0);
    const std::int64_t place = part * places + query_place(sizes, sequence, head, query);
    call.sums[place * sizes.head_size + element] = sum;
    if (element == 0) call.found[place] = all;
  }
}

// Combines the parts; one block per query of a head.
template <class T>
__global__ void __launch_bounds__(kThreads) join_kernel(Call<T> call) {
  const Sizes& sizes = call.sizes;
  const std::int64_t place = blockIdx.x;
  const std::int64_t places = query_place(sizes, sizes.batch, 0, 0);
  Found all{-INFINITY, 0};
  for (int part = 0; part < call.parts; ++part) {
    all.most = fmaxf(all.most, call.found[part * places + place].most);
  }
  const float base = all.most == -INFINITY ? 0.0f : all.most;
  for (int part = 0; part < call.parts; ++part) {
    const Found& found = call.found[part * places + place];
    all.total += expf(found.most - base) * found.total;
  }
  const int query = static_cast<int>(place % sizes.queries);
  const int head = static_cast<int>(place / sizes.queries % sizes.heads);
  const std::int64_t sequence = place / sizes.queries / sizes.heads;
  T* out = call.out.at(sequence * sizes.queries + query, head, sizes.head_size);
  const float factor = all.total == 0 ? 0.0f : 1 / all.total;
  for (int i = static_cast<int>(threadIdx.x); i < sizes.head_size; i += kThreads) {
    float sum = 0;
    for (int part = 0; part < call.parts; ++part) {
      const std::int64_t from = part * places + place;
      sum = fmaf(expf(call.found[from].most - base), call.sums[from * sizes.head_size + i], sum);
    }
    out[i] = from_float<T>(sum * factor);
  }
  if (threadIdx.x == 0) {
    call.log_sum[place] = all.total == 0 ? -INFINITY : all.most + logf(all.total);
  }
}

std::int64_t rows_of(const ops::AttentionShape& shape) {
  return shape.queries * (shape.heads / shape.kv_heads);
}

// Whether a team of at most a warp holds a head.
bool shape_fits(const ops::AttentionShape& shape) {
  const auto piece = static_cast<std::int64_t>(16 / size_of(shape.dtype));
  return shape.batch > 0 && shape.queries > 0 && shape.keys > 0 && shape.head_size <= 32 * piece &&
         shape.head_size % piece == 0 && rows_of(shape) <= kRowsAccepted;
}

// Grows with the keys until there are enough blocks.
std::int64_t parts_of(const Context& context, const ops::AttentionShape& shape) {
  const std::int64_t others =
      shape.batch * shape.kv_heads * ((rows_of(shape) + kMostRows - 1) / kMostRows);
  const std::int64_t enough = (4 * context.multiprocessors + others - 1) / others;
  const std::int64_t by_keys = (shape.keys + kLeastKeys - 1) / kLeastKeys;
  return std::max<std::int64_t>(1, std::min({by_keys, enough, kMostParts}));
}

std::int64_t places_of(const ops::AttentionShape& shape) {
  return shape.batch * shape.heads * shape.queries;
}
std::size_t found_bytes(const Context& context, const ops::AttentionShape& shape) {
  return workspace_bytes(parts_of(context, shape) * places_of(shape), sizeof(Found));
}

// Calls f with the number of lanes per head and of rows per block, as types.
template <class T, class F>
void with_team(std::int64_t head_size, std::int64_t rows, F&& f) {
  const auto with_rows = [&]<int kLanes>(std::integral_constant<int, kLanes> lanes) {
    if (rows <= 1) return f(lanes, std::integral_constant<int, 1>{});
    if (rows <= 4) return f(lanes, std::integral_constant<int, 4>{});
    f(lanes, std::integral_constant<int, kMostRows>{});
  };
  if (head_size <= 8 * kPiece<T>) return with_rows(std::integral_constant<int, 8>{});
  if (head_size <= 16 * kPiece<T>) return with_rows(std::integral_constant<int, 16>{});
  with_rows(std::integral_constant<int, 32>{});
}

}  // namespace
}  // namespace lockstep::cuda::attention::split

namespace lockstep::cuda::attention {

bool split_accepts(const Context& context, const ops::Attention& call) {
  const auto piece = static_cast<std::int64_t>(16 / size_of(call.shape.dtype));
  const std::int64_t size = call.shape.head_size;
  return split::shape_fits(call.shape) && call.dropout.probability == 0 && call.softcap == 0 &&
         call.shape.distances == 0 && !ops::is_given(call.probabilities) &&
         aligned(call.q, size, piece) && aligned(call.k, size, piece) &&
         aligned(call.v, size, piece) &&
         context.workspace_bytes >= split_scratch(context, call.shape);
}

std::size_t split_scratch(const Context& context, const ops::AttentionShape& shape) {
  if (!split::shape_fits(shape)) return 0;
  const std::int64_t elements =
      split::parts_of(context, shape) * split::places_of(shape) * shape.head_size;
  return split::found_bytes(context, shape) + workspace_bytes(elements, sizeof(float));
}

void run_split(const Context& context, const ops::Attention& call) {
  const ops::AttentionShape& shape = call.shape;
  const Sizes sizes = sizes_of(shape);
  // Those that any query attends to.
  const std::int64_t keys = std::max<std::int64_t>(shape.keys - first_seen(sizes, 0), 1);
  const std::int64_t parts =
      std::min(split::parts_of(context, shape), (keys + split::kLeastKeys - 1) / split::kLeastKeys);
  const std::int64_t rows = split::rows_of(shape);
  std::byte* memory = workspace(context, split_scratch(context, shape));
  with_compute_type(shape.dtype, [&]<class T>(T) {
    const split::Call<T> arguments{
        .sizes = sizes,
        .q = head_rows<const T>(call.q),
        .k = head_rows<const T>(call.k),
        .v = head_rows<const T>(call.v),
        .out = head_rows<T>(call.out),
        .mask = mask_of(call.key_mask),
        .log_sum = reinterpret_cast<float*>(call.log_sum.data()),
        .scale = call.scale,
        .parts = static_cast<int>(parts),
        .keys_per_part = static_cast<int>((keys + parts - 1) / parts),
        .found = reinterpret_cast<split::Found*>(memory),
        .sums = reinterpret_cast<float*>(memory + split::found_bytes(context, shape))};
    split::with_team<T>(
        shape.head_size, rows,
        [&]<int kLanes, int kRows>(std::integral_constant<int, kLanes>,
                                   std::integral_constant<int, kRows>) {
          launch<split::Call<T>>(
              "attention_split", split::split_kernel<T, kLanes, kRows>,
              parts * shape.batch * shape.kv_heads * tiles_of(static_cast<int>(rows), kRows),
              split::kThreads, sizeof(typename split::Team<T, kLanes, kRows>::Shared),
              context.stream, arguments);
        });
    launch<split::Call<T>>("attention_join", split::join_kernel<T>, split::places_of(shape),
                           split::kThreads, 0, context.stream, arguments);
  });
}

}  // namespace lockstep::cuda::attention
