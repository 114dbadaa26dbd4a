// All kernels pull: ranks meet, every rank reads what it needs from the memory of others, and they
// meet again, so that inputs may change afterwards.
//
// Sums have the order of a balanced binary tree over ranks: ((0 + 1) + (2 + 3)) + ... Elements of
// 16 bits are summed in 32.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "lockstep/comm/cuda/kernels.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;
constexpr std::size_t kVector = 16;  // bytes

// ---- meetings

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ void send_signal(std::uint64_t* slot, std::uint64_t signal) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(slot), "l"(signal) : "memory");
}

__device__ std::uint64_t read_signal(const std::uint64_t* slot) {
  std::uint64_t signal;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(signal) : "l"(slot) : "memory");
  return signal;
}

__device__ bool has_come(std::uint64_t signal, std::uint32_t meeting) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(signal >> 32) - meeting) >= 0;
}

__device__ void end_all(const Peers& peers) {
  for (int r = 0; r < peers.size; ++r) {
    *reinterpret_cast<volatile std::uint32_t*>(&peers.controls[r]->aborted) = 1;
  }
  __threadfence_system();
}

__device__ void report(const Peers& peers, const Header& header, Outcome outcome, int other,
                       std::uint32_t meeting) {
  Control& mine = *peers.controls[peers.rank];
  if (atomicExch(&mine.claimed, 1u) == 0) {
    Report& report = *peers.report;
    std::uint32_t missing = 0;
    for (int r = 0; r < peers.size; ++r) {
      if (r != peers.rank && !has_come(read_signal(&mine.signals[blockIdx.x][r]), meeting)) {
        missing |= 1u << r;
      }
    }
    report.missing = missing;
    report.other = static_cast<std::uint32_t>(other);
    report.mine = header.operation;
    report.theirs = peers.controls[other]->operations[meeting & 1];
    __threadfence_system();
    report.outcome = static_cast<std::uint32_t>(outcome);
    __threadfence_system();
  }
  end_all(peers);
}

// Waits for rank `other` to come to a meeting; false where the call ends instead.
__device__ bool await(const Peers& peers, const Header& header, int other, std::uint32_t meeting) {
  constexpr int kSpins = 128;  // between looks at the host's memory and the clock
  Control& mine = *peers.controls[peers.rank];
  const std::uint64_t* const slot = &mine.signals[blockIdx.x][other];
  const std::uint64_t begin = nanoseconds();
  for (int spins = 0;; ++spins) {
    const std::uint64_t signal = read_signal(slot);
    if (has_come(signal, meeting)) {
      // One that is ahead has compared already.
      if (static_cast<std::uint32_t>(signal >> 32) != meeting) return true;
      if (static_cast<std::uint32_t>(signal) == header.tag) return true;
      report(peers, header, Outcome::kMismatch, other, meeting);
      return false;
    }
    if (*reinterpret_cast<volatile std::uint32_t*>(&mine.aborted) != 0) {
      report(peers, header, Outcome::kStopped, other, meeting);
      return false;
    }
    if (spins < kSpins) continue;
    spins = 0;
    if (peers.report->abort != 0) {
      report(peers, header, Outcome::kStopped, other, meeting);
      return false;
    }
    if (nanoseconds() - begin > peers.timeout) {
      report(peers, header, Outcome::kOverdue, other, meeting);
      return false;
    }
  }
}

// The meetings of one block of threads. Every thread calls all functions.
class Meetings {
 public:
  __device__ Meetings(const Peers& peers, const Header& header) : peers_(peers), header_(header) {
    number_ = mine().meetings[blockIdx.x];
    __syncthreads();  // all have read it
  }

  // Makes this block's writes visible to the same blocks of other ranks, and theirs to it. False
  // where the call has ended.
  __device__ bool meet() {
    ++number_;
    if (blockIdx.x == 0 && threadIdx.x == 0) mine().operations[number_ & 1] = header_.operation;
    __syncthreads();
    const auto other = static_cast<int>(threadIdx.x);
    bool fine = true;
    if (other < peers_.size && other != peers_.rank) {
      send_signal(&peers_.controls[other]->signals[blockIdx.x][peers_.rank],
                  std::uint64_t{number_} << 32 | header_.tag);
      fine = await(peers_, header_, other, number_);
    }
    return __syncthreads_and(fine) != 0;
  }

  __device__ bool meet(const Card& card) {
    if (threadIdx.x == 0) mine().cards[blockIdx.x] = card;
    return meet();
  }

  __device__ void end() {
    if (threadIdx.x == 0) mine().meetings[blockIdx.x] = number_;
  }

  __device__ std::uint32_t number() const { return number_; }

 private:
  __device__ Control& mine() const { return *peers_.controls[peers_.rank]; }

  const Peers& peers_;
  const Header& header_;
  std::uint32_t number_;
};

__device__ const Card& card_of(const Peers& peers, int rank) {
  return peers.controls[rank]->cards[blockIdx.x];
}

__device__ std::byte* address(const Peers& peers, int rank, const Place& place) {
  return peers.bases[place.allocation * kMostRanks + rank] + place.offset;
}

// ---- elements

template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<__half> {
  using type = float;
};
template <>
struct Wide<__nv_bfloat16> {
  using type = float;
};

template <class T>
__device__ typename Wide<T>::type widen(T x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else {
    return x;
  }
}

template <class T>
__device__ T narrow(typename Wide<T>::type x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

// Integers wrap around.
template <class W>
__device__ W add(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    return a + b;
  } else {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
}

template <class W>
__device__ W multiply(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    return a * b;
  } else {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(static_cast<std::uint64_t>(static_cast<U>(a)) *
                                         static_cast<std::uint64_t>(static_cast<U>(b))));
  }
}

template <bool kSums, class W>
__device__ W combine(W a, W b, ReduceOp::Kind op) {
  if constexpr (kSums) return add(a, b);
  switch (op) {
    case ReduceOp::kProd:
      return multiply(a, b);
    case ReduceOp::kMin:
      if (a != a) return a;
      return b < a || b != b ? b : a;
    case ReduceOp::kMax:
      if (a != a) return a;
      return b > a || b != b ? b : a;
    default:
      return add(a, b);
  }
}

// Combines what ranks give, one after the other, in the order of a balanced tree: level l holds the
// result of 2^l ranks.
template <class T, bool kSums>
class Tree {
 public:
  using W = typename Wide<T>::type;

  __device__ void add(int rank, W x, ReduceOp::Kind op) {
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if ((rank >> level & 1) == 0) {
        levels_[level] = x;
        return;
      }
      x = combine<kSums>(levels_[level], x, op);
    }
    all_ = x;
  }

  // Of `ranks` ranks.
  __device__ W finish(int ranks, ReduceOp::Kind op) const {
    W result = all_;  // of 16
    bool any = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if ((ranks >> level & 1) == 0) continue;
      result = any ? combine<kSums>(levels_[level], result, op) : levels_[level];
      any = true;
    }
    return op == ReduceOp::kMean ? static_cast<W>(result / static_cast<W>(ranks)) : result;
  }

 private:
  static constexpr int kLevels = 4;  // of fewer than 16 ranks

  W levels_[kLevels];
  W all_{};
};

// Reads that no cache of this processor answers with older values.
template <class V>
__device__ V fresh(const V* from) {
  return __ldcv(from);
}
template <>
__device__ __nv_bfloat16 fresh(const __nv_bfloat16* from) {
  const auto bits = __ldcv(reinterpret_cast<const unsigned short*>(from));
  return __ushort_as_bfloat16(bits);
}
template <>
__device__ __half fresh(const __half* from) {
  return __ushort_as_half(__ldcv(reinterpret_cast<const unsigned short*>(from)));
}
template <>
__device__ std::int8_t fresh(const std::int8_t* from) {
  return static_cast<std::int8_t>(__ldcv(reinterpret_cast<const signed char*>(from)));
}
template <>
__device__ std::int64_t fresh(const std::int64_t* from) {
  return static_cast<std::int64_t>(__ldcv(reinterpret_cast<const long long*>(from)));
}

struct Range {
  std::size_t first;
  std::size_t end;
};

// Part `part` of `parts` of [0, count), in units of `unit`.
__device__ Range part_of(std::size_t count, std::size_t unit, std::size_t part, std::size_t parts) {
  const std::size_t units = (count + unit - 1) / unit;
  const std::size_t each = (units + parts - 1) / parts * unit;
  const std::size_t first = min(part * each, count);
  return {first, min(first + each, count)};
}

// What one rank gives: kUnroll vectors of each thread, `stride` bytes apart.
template <class T, int kUnroll>
struct Vectors {
  static constexpr int kCount = kUnroll * static_cast<int>(kVector / sizeof(T));
  union {
    uint4 vectors[kUnroll];
    T elements[kCount];
  };

  __device__ void read(const T* from) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      vectors[u] = fresh(reinterpret_cast<const uint4*>(from) + kThreads * u);
    }
  }
  __device__ void write(T* to) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) reinterpret_cast<uint4*>(to)[kThreads * u] = vectors[u];
  }
};

// Element k of ranks [kFirst, kFirst + kRanks), as a balanced tree.
template <int kFirst, int kRanks, class T, int kUnroll>
__device__ typename Wide<T>::type tree_sum(const Vectors<T, kUnroll>* given, int k) {
  if constexpr (kRanks == 1) {
    return widen(given[kFirst].elements[k]);
  } else {
    return add(tree_sum<kFirst, kRanks / 2>(given, k),
               tree_sum<kFirst + kRanks / 2, kRanks / 2>(given, k));
  }
}

// Sums of 2, 4 or 8 ranks: all loads first.
template <class T, int kRanks, int kUnroll>
__device__ void sum_tile(const T* const* sources, T* out, std::size_t own, float share) {
  Vectors<T, kUnroll> given[kRanks];
#pragma unroll
  for (int r = 0; r < kRanks; ++r) given[r].read(sources[r] + own);
  Vectors<T, kUnroll> sums;
#pragma unroll
  for (int k = 0; k < sums.kCount; ++k) {
    auto sum = tree_sum<0, kRanks>(given, k);
    if (share != 1) sum *= static_cast<decltype(sum)>(share);
    sums.elements[k] = narrow<T>(sum);
  }
  sums.write(out + own);
}

// The elements of a range, which begins at a vector, that make whole tiles; returns the next one.
// `share` is a power of two, so that multiplying by it is dividing.
template <class T, int kRanks>
__device__ std::size_t sum_tiles(const T* const* sources, T* out, Range range, float share) {
  constexpr std::size_t kEach = kVector / sizeof(T);
  constexpr int kUnroll = 8 / kRanks;
  constexpr std::size_t kRow = std::size_t{kThreads} * kEach;
  std::size_t i = range.first;
  const std::size_t own = std::size_t{threadIdx.x} * kEach;
  for (; i + kRow * kUnroll <= range.end; i += kRow * kUnroll) {
    sum_tile<T, kRanks, kUnroll>(sources, out, i + own, share);
  }
  for (; i + kRow <= range.end; i += kRow) {
    sum_tile<T, kRanks, 1>(sources, out, i + own, share);
  }
  // The last vectors have a thread each.
  if (const std::size_t left = (range.end - i) / kEach; left > 0) {
    if (threadIdx.x < left) sum_tile<T, kRanks, 1>(sources, out, i + own, share);
    i += left * kEach;
  }
  return i;
}

template <class T>
__device__ bool all_begin_at_vectors(const T* const* sources, int ranks, const T* out,
                                     std::size_t first) {
  auto bits = reinterpret_cast<std::uintptr_t>(out + first);
  for (int r = 0; r < ranks; ++r) bits |= reinterpret_cast<std::uintptr_t>(sources[r] + first);
  return bits % kVector == 0;
}

// out[i] = all sources' [i] combined, for i in the range; by all threads of the block. Sums of
// floating-point numbers, which are frequent, take vectors. Not inlined: it takes long to compile,
// and three kernels call it.
template <class T, bool kSums>
__device__ __noinline__ void combine_range(const T* const* sources, int ranks, T* out, Range range,
                                           ReduceOp::Kind op) {
  using W = typename Wide<T>::type;
  if constexpr (kSums && std::is_same_v<W, float>) {
    if (all_begin_at_vectors(sources, ranks, out, range.first)) {
      const float share = op == ReduceOp::kMean ? 1.0f / static_cast<float>(ranks) : 1.0f;
      if (ranks == 2) range.first = sum_tiles<T, 2>(sources, out, range, share);
      if (ranks == 4) range.first = sum_tiles<T, 4>(sources, out, range, share);
      if (ranks == 8) range.first = sum_tiles<T, 8>(sources, out, range, share);
    }
  }
  for (std::size_t i = range.first + threadIdx.x; i < range.end; i += kThreads) {
    Tree<T, kSums> tree;
    for (int r = 0; r < ranks; ++r) tree.add(r, widen(fresh(sources[r] + i)), op);
    out[i] = narrow<T>(tree.finish(ranks, op));
  }
}

// By all threads of the block.
__device__ __noinline__ void copy_range(std::byte* to, const std::byte* from, Range range) {
  if (to == from) return;
  constexpr int kUnroll = 4;
  std::size_t i = range.first;
  const auto bits =
      reinterpret_cast<std::uintptr_t>(to + i) | reinterpret_cast<std::uintptr_t>(from + i);
  if (bits % kVector == 0) {
    constexpr std::size_t kTile = std::size_t{kThreads} * kVector * kUnroll;
    for (; i + kTile <= range.end; i += kTile) {
      const std::size_t own = i + std::size_t{threadIdx.x} * kVector;
      uint4 read[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        read[u] =
            fresh(reinterpret_cast<const uint4*>(from + own + std::size_t{kThreads} * kVector * u));
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        *reinterpret_cast<uint4*>(to + own + std::size_t{kThreads} * kVector * u) = read[u];
      }
    }
    const std::size_t end = i + (range.end - i) / kVector * kVector;
    for (std::size_t own = i + std::size_t{threadIdx.x} * kVector; own < end;
         own += std::size_t{kThreads} * kVector) {
      *reinterpret_cast<uint4*>(to + own) = fresh(reinterpret_cast<const uint4*>(from + own));
    }
    i = end;
  }
  if (bits % 4 == 0) {
    for (std::size_t k = i + std::size_t{threadIdx.x} * 4; k + 4 <= range.end; k += kThreads * 4) {
      *reinterpret_cast<unsigned*>(to + k) = fresh(reinterpret_cast<const unsigned*>(from + k));
    }
    i += (range.end - i) / 4 * 4;
  }
  for (i += threadIdx.x; i < range.end; i += kThreads) {
    *reinterpret_cast<unsigned char*>(to + i) =
        fresh(reinterpret_cast<const unsigned char*>(from + i));
  }
}

// ---- kernels

__global__ void __launch_bounds__(kThreads)
    move_kernel(const __grid_constant__ Peers peers, const __grid_constant__ Header header,
                const __grid_constant__ Move move) {
  Meetings meetings(peers, header);
  if (meetings.meet(move.card)) {
    // Ranks read from each other in turn, so that no memory is read by all at once.
    for (int turn = 0; turn < peers.size; ++turn) {
      const int rank = (peers.rank + turn) % peers.size;
      if (move.bytes[rank] == 0) continue;
      const Card& card = card_of(peers, rank);
      const std::byte* const from = address(peers, rank, card.in) + card.first_for[peers.rank];
      copy_range(move.out + move.first[rank], from,
                 part_of(move.bytes[rank], kVector, blockIdx.x, gridDim.x));
    }
    meetings.meet();
  }
  meetings.end();
}

template <class T>
struct Sources {
  const T* from[kMostRanks];
};

template <class T>
__device__ void find_sources(const Peers& peers, Sources<T>& sources, std::size_t first) {
  const auto rank = static_cast<int>(threadIdx.x);
  if (rank < peers.size) {
    sources.from[rank] =
        reinterpret_cast<const T*>(address(peers, rank, card_of(peers, rank).in)) + first;
  }
  __syncthreads();
}

template <class T, bool kSums>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(const __grid_constant__ Peers peers, const __grid_constant__ Header header,
                  ReduceOp::Kind op, const __grid_constant__ Reduce call) {
  __shared__ Sources<T> sources;
  Meetings meetings(peers, header);
  if (meetings.meet(call.card)) {
    if (call.count > 0) {
      find_sources(peers, sources, call.first);
      combine_range<T, kSums>(sources.from, peers.size, reinterpret_cast<T*>(call.out),
                              part_of(call.count, kVector, blockIdx.x, gridDim.x), op);
    }
    meetings.meet();
  }
  meetings.end();
}

template <class T, bool kSums>
__global__ void __launch_bounds__(kThreads)
    one_shot_kernel(const __grid_constant__ Peers peers, const __grid_constant__ Header header,
                    ReduceOp::Kind op, const __grid_constant__ OneShot call) {
  __shared__ Sources<T> sources;
  Meetings meetings(peers, header);
  // Others may still read what the last call put into the other half.
  const std::size_t half = (meetings.number() & 1) * kSmallBytes;
  const Range mine = part_of(call.count, kVector, blockIdx.x, gridDim.x);
  copy_range(peers.small[peers.rank] + half, call.in,
             {mine.first * sizeof(T), mine.end * sizeof(T)});
  if (threadIdx.x < peers.size) {
    sources.from[threadIdx.x] = reinterpret_cast<const T*>(peers.small[threadIdx.x] + half);
  }
  if (meetings.meet()) {
    combine_range<T, kSums>(sources.from, peers.size, reinterpret_cast<T*>(call.out), mine, op);
  }
  meetings.end();
}

template <class T, bool kSums>
__global__ void __launch_bounds__(kThreads)
    two_shot_kernel(const __grid_constant__ Peers peers, const __grid_constant__ Header header,
                    ReduceOp::Kind op, const __grid_constant__ TwoShot call) {
  __shared__ Sources<T> sources;
  Meetings meetings(peers, header);
  if (meetings.meet(call.card)) {
    find_sources(peers, sources, 0);
    // Of rank r's part this block has a slice at all ranks.
    const auto slice_of = [&](int rank) {
      const Range part = part_of(call.count, kVector, static_cast<std::size_t>(rank),
                                 static_cast<std::size_t>(peers.size));
      const Range slice = part_of(part.end - part.first, kVector, blockIdx.x, gridDim.x);
      return Range{part.first + slice.first, part.first + slice.end};
    };
    auto* const out = address(peers, peers.rank, call.card.out);
    combine_range<T, kSums>(sources.from, peers.size, reinterpret_cast<T*>(out),
                            slice_of(peers.rank), op);
    if (meetings.meet()) {
      for (int turn = 1; turn < peers.size; ++turn) {
        const int rank = (peers.rank + turn) % peers.size;
        const Range slice = slice_of(rank);
        copy_range(out, address(peers, rank, card_of(peers, rank).out),
                   {slice.first * sizeof(T), slice.end * sizeof(T)});
      }
      meetings.meet();
    }
  }
  meetings.end();
}

__global__ void barrier_kernel(const __grid_constant__ Peers peers,
                               const __grid_constant__ Header header) {
  Meetings meetings(peers, header);
  meetings.meet();
  meetings.end();
}

// ---- launches

// Calls f with an element of the type on the device.
template <class F>
void with_device_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    case DType::kF16:
      return f(__half{});
    case DType::kBF16:
      return f(__nv_bfloat16{});
    case DType::kI8:
      return f(std::int8_t{});
    case DType::kU8:
      return f(std::uint8_t{});
    case DType::kI32:
      return f(std::int32_t{});
    case DType::kI64:
      return f(std::int64_t{});
  }
}

template <class F>
void with_kernel(const Elements& elements, F&& f) {
  const bool sums = elements.op == ReduceOp::kSum || elements.op == ReduceOp::kMean;
  with_device_type(elements.dtype, [&](auto zero) {
    if (sums) {
      f(zero, std::true_type{});
    } else {
      f(zero, std::false_type{});
    }
  });
}

}  // namespace

void launch_move(const Peers& peers, const Header& header, const Move& move, cudaStream_t stream) {
  move_kernel<<<header.blocks, kThreads, 0, stream>>>(peers, header, move);
  check_launch("a move of data between ranks");
}

void launch_reduce(const Peers& peers, const Header& header, const Elements& elements,
                   const Reduce& reduce, cudaStream_t stream) {
  with_kernel(elements, [&](auto zero, auto sums) {
    reduce_kernel<decltype(zero), decltype(sums)::value>
        <<<header.blocks, kThreads, 0, stream>>>(peers, header, elements.op, reduce);
  });
  check_launch("a reduction over ranks");
}

void launch_one_shot(const Peers& peers, const Header& header, const Elements& elements,
                     const OneShot& call, cudaStream_t stream) {
  with_kernel(elements, [&](auto zero, auto sums) {
    one_shot_kernel<decltype(zero), decltype(sums)::value>
        <<<header.blocks, kThreads, 0, stream>>>(peers, header, elements.op, call);
  });
  check_launch("a small all-reduce");
}

void launch_two_shot(const Peers& peers, const Header& header, const Elements& elements,
                     const TwoShot& call, cudaStream_t stream) {
  with_kernel(elements, [&](auto zero, auto sums) {
    two_shot_kernel<decltype(zero), decltype(sums)::value>
        <<<header.blocks, kThreads, 0, stream>>>(peers, header, elements.op, call);
  });
  check_launch("an all-reduce");
}

void launch_barrier(const Peers& peers, const Header& header, cudaStream_t stream) {
  barrier_kernel<<<1, 32, 0, stream>>>(peers, header);
  check_launch("a barrier");
}

void load_kernels() {
  const auto load = [](auto kernel) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel), "loading a collective");
  };
  load(&move_kernel);
  load(&barrier_kernel);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp::Kind op : {ReduceOp::kSum, ReduceOp::kMax}) {
      with_kernel({dtype, op}, [&](auto zero, auto sums) {
        using T = decltype(zero);
        constexpr bool kSums = decltype(sums)::value;
        load(&reduce_kernel<T, kSums>);
        load(&one_shot_kernel<T, kSums>);
        load(&two_shot_kernel<T, kSums>);
      });
    }
  }
}

}  // namespace lockstep::cuda
