// A stable radix sort by eight bits of the key at a time, from the lowest on. Three kernels sort by
// a digit. The first counts the digits of every tile of kTile places. The second turns the counts,
// digit by digit and tile by tile within a digit, into the place where each tile's elements of each
// digit begin. The third moves every element to its place. Within a tile the place follows from the
// number of earlier elements with the same digit: in earlier warps, in earlier rounds of the same
// warp, in lower lanes of the same round.
#include "lockstep/ops/cuda/embedding/order.h"

#include <algorithm>
#include <bit>

#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRounds = 8;
constexpr int kTile = kThreads * kRounds;
constexpr int kDigits = 256;  // as many as threads: each thread owns one
static_assert(kDigits == kThreads);

__global__ void __launch_bounds__(kThreads)
    keys_of_indices(const std::int32_t* indices, std::size_t rows, TableEntries entries,
                    std::uint32_t* keys, std::uint32_t* order, unsigned long long* fault_word) {
  const std::size_t row = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= rows) return;
  const std::int32_t index = indices[row];
  if (index < 0 || index >= entries.all) {
    atomicMin(fault_word, fault(static_cast<std::int64_t>(row), index));
  }
  const std::int64_t entry = index - entries.first;
  const bool inside = index >= 0 && entry >= 0 && entry < entries.count;
  keys[row] = static_cast<std::uint32_t>(inside ? entry : entries.count);
  order[row] = static_cast<std::uint32_t>(row);
}

// Position p has the rows p, p + sequence, and so on: `whole` of them, and one more for the first
// `more` positions.
__global__ void __launch_bounds__(kThreads)
    positions_in_order(std::uint32_t rows, std::uint32_t sequence, std::uint32_t* keys,
                       std::uint32_t* order) {
  const std::size_t place = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (place >= rows) return;
  const auto i = static_cast<std::uint32_t>(place);
  const std::uint32_t whole = rows / sequence, more = rows % sequence;
  const std::uint32_t longer = more * (whole + 1);  // places of the first `more` positions
  const bool is_longer = i < longer;
  const std::uint32_t rest = is_longer ? i : i - longer;
  const std::uint32_t each = is_longer ? whole + 1 : whole;
  const std::uint32_t position = rest / each + (is_longer ? 0 : more);
  keys[place] = position;
  order[place] = rest % each * sequence + position;
}

__device__ __forceinline__ std::uint32_t digit_of(std::uint32_t key, int shift) {
  return (key >> shift) & (kDigits - 1);
}

// counts[digit * tiles + tile]
__global__ void __launch_bounds__(kThreads)
    count_digits(const std::uint32_t* keys, std::size_t rows, int shift, std::uint32_t* counts) {
  __shared__ std::uint32_t own[kDigits];
  own[threadIdx.x] = 0;
  __syncthreads();
  const std::size_t first = std::size_t{blockIdx.x} * kTile;
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const std::size_t place = first + static_cast<std::size_t>(i * kThreads) + threadIdx.x;
    if (place < rows) atomicAdd(&own[digit_of(keys[place], shift)], 1u);
  }
  __syncthreads();
  counts[std::size_t{threadIdx.x} * gridDim.x + blockIdx.x] = own[threadIdx.x];
}

constexpr int kScanThreads = 1024;

// Every count becomes the sum of those before it. One block; a thread has a run of them.
__global__ void __launch_bounds__(kScanThreads) scan_counts(std::uint32_t* counts, int count) {
  __shared__ std::uint32_t warp_totals[kScanThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int each = (count + kScanThreads - 1) / kScanThreads;
  const int begin = min(thread * each, count), end = min(begin + each, count);
  std::uint32_t total = 0;
  for (int i = begin; i < end; ++i) total += counts[i];

  std::uint32_t up_to = total;  // of the lanes up to this one
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t before = __shfl_up_sync(kAllLanes, up_to, distance);
    if (lane >= distance) up_to += before;
  }
  if (lane == 31) warp_totals[warp] = up_to;
  __syncthreads();
  std::uint32_t sum = up_to - total;
  for (int w = 0; w < warp; ++w) sum += warp_totals[w];
  for (int i = begin; i < end; ++i) {
    const std::uint32_t here = counts[i];
    counts[i] = sum;
    sum += here;
  }
}

__global__ void __launch_bounds__(kThreads)
    move_to_places(const std::uint32_t* keys, const std::uint32_t* order, std::size_t rows,
                   int shift, const std::uint32_t* begins, std::uint32_t* to_keys,
                   std::uint32_t* to_order) {
  __shared__ std::uint32_t counts[kWarps][kDigits];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();

  const std::size_t first =
      std::size_t{blockIdx.x} * kTile + std::size_t(warp * kRounds * 32 + lane);
  std::uint32_t key[kRounds], row[kRounds], before[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const std::size_t place = first + static_cast<std::size_t>(i * 32);
    const bool is_there = place < rows;
    key[i] = is_there ? keys[place] : 0;
    row[i] = is_there ? order[place] : 0;
    const std::uint32_t digit = is_there ? digit_of(key[i], shift) : kDigits;
    const unsigned equal = __match_any_sync(kAllLanes, digit);
    const unsigned lower = equal & ((1u << lane) - 1);
    const std::uint32_t earlier = is_there ? counts[warp][digit] : 0;
    __syncwarp();
    if (is_there && lower == 0) {
      counts[warp][digit] = earlier + static_cast<std::uint32_t>(__popc(equal));
    }
    __syncwarp();
    before[i] = earlier + static_cast<std::uint32_t>(__popc(lower));
  }
  __syncthreads();
  std::uint32_t begin = begins[std::size_t{threadIdx.x} * gridDim.x + blockIdx.x];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const std::uint32_t here = counts[w][threadIdx.x];
    counts[w][threadIdx.x] = begin;
    begin += here;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    if (first + static_cast<std::size_t>(i * 32) < rows) {
      const std::uint32_t to = counts[warp][digit_of(key[i], shift)] + before[i];
      to_keys[to] = key[i];
      to_order[to] = row[i];
    }
  }
}

unsigned blocks_for(std::size_t rows, int each) {
  return static_cast<unsigned>(divide_up(rows, static_cast<std::size_t>(each)));
}

}  // namespace

std::size_t order_counts(std::size_t rows) { return kDigits * divide_up(rows, kTile); }

RowOrder order_by_index(const Context& context, const OrderWorkspace& workspace,
                        const std::int32_t* indices, std::size_t rows, const TableEntries& entries,
                        unsigned long long* fault_word) {
  keys_of_indices<<<blocks_for(rows, kThreads), kThreads, 0, context.stream>>>(
      indices, rows, entries, workspace.keys[0], workspace.rows[0], fault_word);
  check_launch("embedding_backward: keys");
  const unsigned tiles = blocks_for(rows, kTile);
  int at = 0;
  const int bits = std::bit_width(static_cast<std::uint64_t>(entries.count));
  for (int shift = 0; shift < bits; shift += 8, at ^= 1) {
    count_digits<<<tiles, kThreads, 0, context.stream>>>(workspace.keys[at], rows, shift,
                                                         workspace.counts);
    check_launch("embedding_backward: count");
    scan_counts<<<1, kScanThreads, 0, context.stream>>>(workspace.counts,
                                                        static_cast<int>(order_counts(rows)));
    check_launch("embedding_backward: scan");
    move_to_places<<<tiles, kThreads, 0, context.stream>>>(
        workspace.keys[at], workspace.rows[at], rows, shift, workspace.counts,
        workspace.keys[at ^ 1], workspace.rows[at ^ 1]);
    check_launch("embedding_backward: move");
  }
  return {workspace.keys[at], workspace.rows[at]};
}

RowOrder order_by_position(const Context& context, const OrderWorkspace& workspace,
                           std::size_t rows, std::int64_t sequence) {
  // A sequence may be longer than all rows.
  const auto length = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(sequence), rows));
  positions_in_order<<<blocks_for(rows, kThreads), kThreads, 0, context.stream>>>(
      static_cast<std::uint32_t>(rows), length, workspace.keys[0], workspace.rows[0]);
  check_launch("embedding_backward: positions");
  return {workspace.keys[0], workspace.rows[0]};
}

}  // namespace lockstep::cuda
