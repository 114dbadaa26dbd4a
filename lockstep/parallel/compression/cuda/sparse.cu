// topk and randomk: see compression/topk_codec.h and compression/randomk_codec.h.
//
// topk finds the least magnitude that is kept digit by digit, as compression/largest.cpp does: the
// counts of the first digit give the first digit of the limit, the counts of the second among those
// with that first digit give the second, and so on. Then every *tile* of elements counts those
// above the limit and those equal to it, a scan of these counts says where each tile writes, and
// of equal elements those at lower positions are kept. Only integers are added, so no order of
// threads changes a result.
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/parallel/compression/cuda/bits.cuh"
#include "lockstep/parallel/compression/cuda/grid.cuh"
#include "lockstep/parallel/compression/cuda/kernels.h"

namespace lockstep::cuda {
namespace {

constexpr std::size_t kSegment = 65536;
constexpr std::size_t kTilesOfSegment = kSegment / kTopkTile;
constexpr unsigned kEveryLane = 0xffffffffu;
constexpr int kScanThreads = 1024;
static_assert(kSegment % kTopkTile == 0 && kTopkTile % kCodecThreads == 0);

// The digits of a magnitude, from the most significant.
struct Digit {
  int shift;
  unsigned mask;
};
constexpr Digit kDigits[] = {{20, 0x7ff}, {10, 0x3ff}, {0, 0x3ff}};
constexpr unsigned kFirstNonFiniteDigit = 0x7f800000u >> kDigits[0].shift;

// What the search knows so far: at the end the limit, and how many of that magnitude are kept.
struct Search {
  unsigned prefix;
  unsigned prefix_mask;
  unsigned kept;
  unsigned non_finite;
};
static_assert(sizeof(Search) <= kTopkStateWords * sizeof(unsigned));

struct TopkScratch {
  unsigned* counts;  // of a digit; zeros between passes
  Search* search;
  unsigned* above;  // of each tile: how many elements are above the limit; then, of those before it
  unsigned* equal;
  unsigned tiles;
};

TopkScratch scratch_of(std::byte* scratch, std::size_t elements) {
  auto* const words = reinterpret_cast<unsigned*>(scratch);
  const std::size_t tiles = topk_tiles(elements);
  unsigned* const above = words + kTopkDigits + kTopkStateWords;
  return {.counts = words,
          .search = reinterpret_cast<Search*>(words + kTopkDigits),
          .above = above,
          .equal = above + tiles,
          .tiles = static_cast<unsigned>(tiles)};
}

__global__ void __launch_bounds__(kCodecThreads) begin_search(TopkScratch scratch, unsigned kept) {
  for (unsigned i = threadIdx.x; i < kTopkDigits; i += kCodecThreads) scratch.counts[i] = 0;
  if (threadIdx.x == 0) *scratch.search = {.prefix = 0, .prefix_mask = 0, .kept = kept};
}

// Counts the digit of the elements that begin as the limit does. With kAdd sums += values before.
template <bool kAdd>
__global__ void __launch_bounds__(kCodecThreads)
    count_digits(const float* values, float* sums, std::size_t elements, TopkScratch scratch,
                 Digit digit) {
  __shared__ unsigned counts[kTopkDigits];
  for (unsigned i = threadIdx.x; i < kTopkDigits; i += kCodecThreads) counts[i] = 0;
  __syncthreads();
  const Search search = *scratch.search;
  for (std::size_t i = codec_first(); i < elements; i += codec_stride()) {
    float x = values[i];
    if constexpr (kAdd) sums[i] = x = __fadd_rn(x, sums[i]);
    const auto magnitude = static_cast<unsigned>(magnitude_of(x));
    if ((magnitude & search.prefix_mask) != search.prefix) continue;
    atomicAdd(&counts[magnitude >> digit.shift & digit.mask], 1u);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i <= digit.mask; i += kCodecThreads) {
    if (counts[i] != 0) atomicAdd(&scratch.counts[i], counts[i]);
  }
}

// One block of threads: takes the next digit of the limit from the counts, which become zeros.
__global__ void __launch_bounds__(kCodecThreads) take_digit(TopkScratch scratch, Digit digit) {
  constexpr unsigned kGroup = kTopkDigits / kCodecThreads;
  __shared__ unsigned counts[kTopkDigits];
  __shared__ unsigned groups[kCodecThreads];
  unsigned sum = 0;
  unsigned non_finite = 0;
  for (unsigned i = 0; i < kGroup; ++i) {
    const unsigned at = threadIdx.x * kGroup + i;
    const unsigned count = scratch.counts[at];
    counts[at] = count;
    scratch.counts[at] = 0;
    sum += count;
    if (at >= kFirstNonFiniteDigit) non_finite |= count;
  }
  groups[threadIdx.x] = sum;
  const int any = __syncthreads_or(static_cast<int>(non_finite != 0));
  if (threadIdx.x != 0) return;
  Search search = *scratch.search;
  if (search.prefix_mask == 0) search.non_finite = any != 0 ? 1 : 0;
  unsigned group = kCodecThreads - 1;
  for (; group > 0 && groups[group] < search.kept; --group) search.kept -= groups[group];
  unsigned at = group * kGroup + kGroup - 1;
  for (; at > group * kGroup && counts[at] < search.kept; --at) search.kept -= counts[at];
  search.prefix |= at << digit.shift;
  search.prefix_mask |= digit.mask << digit.shift;
  *scratch.search = search;
}

// A block of threads has a tile.
__global__ void __launch_bounds__(kCodecThreads)
    count_tiles(const float* sums, std::size_t elements, TopkScratch scratch) {
  const auto limit = static_cast<int>(scratch.search->prefix);
  const std::size_t begin = std::size_t{blockIdx.x} * kTopkTile;
  const std::size_t end = min(elements, begin + kTopkTile);
  int above = 0;
  int equal = 0;
  for (std::size_t first = begin; first < begin + kTopkTile; first += kCodecThreads) {
    const std::size_t i = first + threadIdx.x;
    const int magnitude = i < end ? magnitude_of(sums[i]) : -1;
    above += __syncthreads_count(static_cast<int>(magnitude > limit));
    equal += __syncthreads_count(static_cast<int>(magnitude == limit));
  }
  if (threadIdx.x != 0) return;
  scratch.above[blockIdx.x] = static_cast<unsigned>(above);
  scratch.equal[blockIdx.x] = static_cast<unsigned>(equal);
}

// counts[i] = the sum of those before it. All threads of the block call it; blockDim is
// kScanThreads.
__device__ void scan(unsigned* counts, unsigned count) {
  __shared__ unsigned warps[kScanThreads / 32];
  __shared__ unsigned carry;
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x == 0) carry = 0;
  __syncthreads();
  for (unsigned first = 0; first < count; first += kScanThreads) {
    const unsigned i = first + threadIdx.x;
    const unsigned own = i < count ? counts[i] : 0;
    unsigned sum = own;  // of this one and those before it in the warp
    for (unsigned step = 1; step < 32; step *= 2) {
      const unsigned before = __shfl_up_sync(kEveryLane, sum, step);
      if (lane >= step) sum += before;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    unsigned before = carry;
    for (unsigned w = 0; w < warp; ++w) before += warps[w];
    if (i < count) counts[i] = before + sum - own;
    __syncthreads();
    if (threadIdx.x == kScanThreads - 1) carry = before + sum;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kScanThreads) scan_tiles(TopkScratch scratch) {
  scan(scratch.above, scratch.tiles);
  __syncthreads();
  scan(scratch.equal, scratch.tiles);
}

// Where the parts of a payload begin.
template <class Byte>
struct TopkParts {
  Byte* counts;     // of 32 bits
  Byte* positions;  // of 16 bits
  Byte* values;     // bf16
};
template <class Byte>
__host__ __device__ TopkParts<Byte> topk_parts(Byte* payload, std::size_t elements,
                                               std::size_t kept) {
  Byte* const positions = payload + (elements + kSegment - 1) / kSegment * 4;
  return {payload, positions, positions + kept * 2};
}

// How many elements are kept before a tile.
__device__ unsigned kept_before(const TopkScratch& scratch, unsigned tile, unsigned equals,
                                unsigned kept) {
  if (tile >= scratch.tiles) return kept;
  return scratch.above[tile] + min(scratch.equal[tile], equals);
}

// A block of threads has a tile.
__global__ void __launch_bounds__(kCodecThreads)
    write_topk(const float* sums, float* residual, std::size_t elements, unsigned kept,
               TopkParts<std::byte> parts, TopkScratch scratch) {
  __shared__ unsigned warps[kCodecThreads / 32];
  const unsigned tile = blockIdx.x;
  const unsigned equals = scratch.search->kept;
  const auto limit = static_cast<int>(scratch.search->prefix);
  if (threadIdx.x == 0 && tile % kTilesOfSegment == 0) {
    const unsigned count = kept_before(scratch, tile + kTilesOfSegment, equals, kept) -
                           kept_before(scratch, tile, equals, kept);
    store_32(parts.counts + tile / kTilesOfSegment * 4, count);
  }
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const std::size_t begin = std::size_t{tile} * kTopkTile;
  const std::size_t end = min(elements, begin + kTopkTile);
  unsigned above = scratch.above[tile];
  unsigned equal = scratch.equal[tile];
  for (std::size_t first = begin; first < end; first += kCodecThreads) {
    const std::size_t i = first + threadIdx.x;
    const float sum = i < end ? sums[i] : 0.0f;
    const int magnitude = i < end ? magnitude_of(sum) : -1;
    const unsigned aboves = __ballot_sync(kEveryLane, magnitude > limit);
    const unsigned equal_ones = __ballot_sync(kEveryLane, magnitude == limit);
    if (lane == 0) warps[warp] = __popc(aboves) | __popc(equal_ones) << 16;
    __syncthreads();
    unsigned before = 0;
    unsigned all = 0;
    for (unsigned w = 0; w < kCodecThreads / 32; ++w) {
      if (w < warp) before += warps[w];
      all += warps[w];
    }
    const unsigned lower = (1u << lane) - 1;
    const unsigned own_above = above + (before & 0xffff) + __popc(aboves & lower);
    const unsigned own_equal = equal + (before >> 16) + __popc(equal_ones & lower);
    if (magnitude > limit || (magnitude == limit && own_equal < equals)) {
      const std::size_t index = own_above + min(own_equal, equals);
      const std::uint16_t value = bf16_of(sum);
      store_16(parts.positions + 2 * index, static_cast<unsigned>(i % kSegment));
      store_16(parts.values + 2 * index, value);
      if (residual != nullptr) {
        residual[i] = finite_or_zero(__fsub_rn(sum, float_of_bf16(value)));
      }
    }
    above += all & 0xffff;
    equal += all >> 16;
    __syncthreads();
  }
}

// What is done with an element that was sent.
enum class Sent { kAdd, kClear };

// A block of threads has a segment. What is invalid is reported and skipped.
template <Sent kSent>
__global__ void __launch_bounds__(kCodecThreads)
    for_sent(TopkParts<const std::byte> parts, float* out, std::size_t elements, std::size_t kept,
             CodecWords* words) {
  __shared__ unsigned long long sums[kCodecThreads];
  const std::size_t segment = blockIdx.x;
  unsigned long long before = 0;
  for (std::size_t s = threadIdx.x; s < segment; s += kCodecThreads) {
    before += load_32(parts.counts + 4 * s);
  }
  sums[threadIdx.x] = before;
  for (unsigned half = kCodecThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  const auto report = [&](CodecFault what) {
    atomicMin(&words->fault, codec_fault(what, segment));
  };
  const std::size_t first = sums[0];
  const std::size_t count = load_32(parts.counts + 4 * segment);
  if (first > kept || count > kept - first) {
    if (threadIdx.x == 0) report(CodecFault::kCount);
    return;
  }
  if (segment + 1 == gridDim.x && first + count != kept && threadIdx.x == 0) {
    report(CodecFault::kEnd);
  }
  const std::size_t size = min(elements - segment * kSegment, kSegment);
  for (std::size_t index = threadIdx.x; index < count; index += kCodecThreads) {
    const unsigned position = load_16(parts.positions + 2 * (first + index));
    if (position >= size) {
      report(CodecFault::kPosition);
      continue;
    }
    if (index > 0 && position <= load_16(parts.positions + 2 * (first + index - 1))) {
      report(CodecFault::kOrder);
      continue;
    }
    const float value = float_of_bf16(load_16(parts.values + 2 * (first + index)));
    float& to = out[segment * kSegment + position];
    if constexpr (kSent == Sent::kAdd) to = __fadd_rn(to, value);
    if constexpr (kSent == Sent::kClear) {
      to = 0;
      if (magnitude_of(value) >= kMagnitudeOfInfinity) atomicOr(&words->non_finite, 1u);
    }
  }
}

template <Sent kSent>
void queue_for_sent(const std::byte* payload, float* out, std::size_t count, std::size_t kept,
                    CodecWords* words, cudaStream_t stream) {
  if (count == 0) return;
  const std::size_t segments = (count + kSegment - 1) / kSegment;
  for_sent<kSent><<<static_cast<unsigned>(segments), kCodecThreads, 0, stream>>>(
      topk_parts(payload, count, kept), out, count, kept, words);
  check_launch("compression: what topk sent");
}

// ---- randomk

// Of a stratum, the position that is drawn.
__device__ __forceinline__ std::size_t drawn(std::uint64_t stratum, std::uint64_t elements,
                                             std::uint64_t kept, std::uint64_t seed) {
  const std::uint64_t begin = stratum * elements / kept;
  const std::uint64_t end = (stratum + 1) * elements / kept;
  const std::uint64_t word = random_word(seed, 0, stratum);
  return begin + (word * (end - begin) >> 32);
}

// sums += values where kAdd; whether any is not finite.
template <bool kAdd>
__global__ void __launch_bounds__(kCodecThreads)
    add_and_look(const float* values, float* sums, std::size_t count, unsigned* non_finite) {
  bool any = false;
  for (std::size_t i = codec_first(); i < count; i += codec_stride()) {
    float x = values[i];
    if constexpr (kAdd) sums[i] = x = __fadd_rn(x, sums[i]);
    any = any || magnitude_of(x) >= kMagnitudeOfInfinity;
  }
  if (any) atomicOr(non_finite, 1u);
}

__global__ void __launch_bounds__(kCodecThreads)
    write_randomk(const float* sums, float* residual, std::size_t elements, std::size_t kept,
                  std::byte* payload, std::uint64_t seed, const unsigned* non_finite) {
  const bool all_finite = *non_finite == 0;
  for (std::size_t i = codec_first(); i < kept; i += codec_stride()) {
    const std::size_t position = drawn(i, elements, kept, seed);
    store_32(payload + 4 * i, all_finite ? __float_as_uint(sums[position]) : kNanBits);
    if (residual != nullptr) residual[position] = 0;
  }
}

template <Sent kSent>
__global__ void __launch_bounds__(kCodecThreads)
    for_drawn(const std::byte* payload, float* out, std::size_t elements, std::size_t kept,
              std::uint64_t seed, CodecWords* words) {
  for (std::size_t i = codec_first(); i < kept; i += codec_stride()) {
    const float value = __uint_as_float(load_32(payload + 4 * i));
    float& to = out[drawn(i, elements, kept, seed)];
    if constexpr (kSent == Sent::kAdd) to = __fadd_rn(to, value);
    if constexpr (kSent == Sent::kClear) {
      to = 0;
      if (magnitude_of(value) >= kMagnitudeOfInfinity) atomicOr(&words->non_finite, 1u);
    }
  }
}

}  // namespace

void encode_topk(const float* values, float* residual, std::size_t count, std::size_t kept,
                 std::byte* payload, std::byte* scratch, cudaStream_t stream) {
  if (count == 0) return;
  const TopkScratch at = scratch_of(scratch, count);
  begin_search<<<1, kCodecThreads, 0, stream>>>(at, static_cast<unsigned>(kept));
  check_launch("compression: topk");
  const float* const sums = residual != nullptr ? residual : values;
  const unsigned blocks = codec_blocks(count);
  bool adds = residual != nullptr;
  for (const Digit digit : kDigits) {
    if (adds) {
      count_digits<true><<<blocks, kCodecThreads, 0, stream>>>(values, residual, count, at, digit);
    } else {
      count_digits<false><<<blocks, kCodecThreads, 0, stream>>>(sums, nullptr, count, at, digit);
    }
    check_launch("compression: topk's digits");
    adds = false;
    take_digit<<<1, kCodecThreads, 0, stream>>>(at, digit);
    check_launch("compression: topk's limit");
  }
  count_tiles<<<at.tiles, kCodecThreads, 0, stream>>>(sums, count, at);
  check_launch("compression: topk's tiles");
  scan_tiles<<<1, kScanThreads, 0, stream>>>(at);
  check_launch("compression: topk's places");
  write_topk<<<at.tiles, kCodecThreads, 0, stream>>>(
      sums, residual, count, static_cast<unsigned>(kept), topk_parts(payload, count, kept), at);
  check_launch("compression: topk's payload");
  if (residual != nullptr) clear_non_finite(residual, count, &at.search->non_finite, stream);
}

void decode_topk(const std::byte* payload, float* out, std::size_t count, std::size_t kept,
                 bool add, CodecWords* words, cudaStream_t stream) {
  if (!add) clear_bytes(out, count * sizeof(float), stream);
  queue_for_sent<Sent::kAdd>(payload, out, count, kept, words, stream);
}

void clear_sent_topk(const std::byte* payload, float* values, std::size_t count, std::size_t kept,
                     CodecWords* words, cudaStream_t stream) {
  clear_bytes(&words->non_finite, sizeof(unsigned), stream);
  queue_for_sent<Sent::kClear>(payload, values, count, kept, words, stream);
  clear_non_finite(values, count, &words->non_finite, stream);
}

void encode_randomk(const float* values, float* residual, std::size_t count, std::size_t kept,
                    std::byte* payload, std::uint64_t seed, CodecWords* words,
                    cudaStream_t stream) {
  if (count == 0) return;
  clear_bytes(&words->non_finite, sizeof(unsigned), stream);
  const unsigned blocks = codec_blocks(count);
  if (residual != nullptr) {
    add_and_look<true>
        <<<blocks, kCodecThreads, 0, stream>>>(values, residual, count, &words->non_finite);
  } else {
    add_and_look<false>
        <<<blocks, kCodecThreads, 0, stream>>>(values, nullptr, count, &words->non_finite);
  }
  check_launch("compression: randomk's sums");
  write_randomk<<<codec_blocks(kept), kCodecThreads, 0, stream>>>(
      residual != nullptr ? residual : values, residual, count, kept, payload, seed,
      &words->non_finite);
  check_launch("compression: randomk's payload");
  if (residual != nullptr) clear_non_finite(residual, count, &words->non_finite, stream);
}

void decode_randomk(const std::byte* payload, float* out, std::size_t count, std::size_t kept,
                    bool add, std::uint64_t seed, cudaStream_t stream) {
  if (!add) clear_bytes(out, count * sizeof(float), stream);
  if (count == 0) return;
  for_drawn<Sent::kAdd>
      <<<codec_blocks(kept), kCodecThreads, 0, stream>>>(payload, out, count, kept, seed, nullptr);
  check_launch("compression: what randomk sent");
}

void clear_sent_randomk(const std::byte* payload, float* values, std::size_t count,
                        std::size_t kept, std::uint64_t seed, CodecWords* words,
                        cudaStream_t stream) {
  if (count == 0) return;
  clear_bytes(&words->non_finite, sizeof(unsigned), stream);
  for_drawn<Sent::kClear>
      <<<codec_blocks(kept), kCodecThreads, 0, stream>>>(payload, values, count, kept, seed, words);
  check_launch("compression: what randomk sent");
  clear_non_finite(values, count, &words->non_finite, stream);
}

void load_sparse_kernels() {
  load_codec_kernel(&begin_search);
  load_codec_kernel(&count_digits<true>);
  load_codec_kernel(&count_digits<false>);
  load_codec_kernel(&take_digit);
  load_codec_kernel(&count_tiles);
  load_codec_kernel(&scan_tiles);
  load_codec_kernel(&write_topk);
  load_codec_kernel(&for_sent<Sent::kAdd>);
  load_codec_kernel(&for_sent<Sent::kClear>);
  load_codec_kernel(&add_and_look<true>);
  load_codec_kernel(&add_and_look<false>);
  load_codec_kernel(&write_randomk);
  load_codec_kernel(&for_drawn<Sent::kAdd>);
  load_codec_kernel(&for_drawn<Sent::kClear>);
}

}  // namespace lockstep::cuda
