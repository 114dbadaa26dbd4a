// All kernels pull: ranks meet, every rank reads what it needs from the memory of others, and they
// meet again, so that inputs may change afterwards.
//
// Sums have the order of a balanced binary tree over ranks: ((0 + 1) + (2 + 3)) + ... Elements of
// 16 bits are summed in 32.
#include <type_traits>

#include "lockstep/comm/cuda/elements.cuh"
#include "lockstep/comm/cuda/kernels.h"
#include "lockstep/comm/cuda/meetings.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

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
  // A block has two slots, whatever the call's size, and takes them in turns: others may still read
  // what it put into one at its last meeting, and have read what it put there before.
  const Range mine = part_of(call.count, kVector, blockIdx.x, gridDim.x);
  const std::size_t slot = (blockIdx.x * 2 + (meetings.number() & 1)) * peers.slot_bytes;
  const auto place_of = [&](int rank) {  // of element 0, were it in the slot
    return peers.small[rank] + slot - mine.first * sizeof(T);
  };
  copy_range(place_of(peers.rank), call.in, {mine.first * sizeof(T), mine.end * sizeof(T)});
  if (const auto rank = static_cast<int>(threadIdx.x); rank < peers.size) {
    sources.from[rank] = reinterpret_cast<const T*>(place_of(rank));
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

}  // namespace

// ---- launches

void launch_move(const Peers& peers, const Header& header, const Move& move, cudaStream_t stream) {
  move_kernel<<<header.blocks, kThreads, 0, stream>>>(peers, header, move);
  check_launch("a move of data between ranks");
}

void launch_reduce(const Peers& peers, const Header& header, const Elements& elements,
                   const Reduce& reduce, cudaStream_t stream) {
  with_kernel(elements.dtype, elements.op, [&](auto zero, auto sums) {
    reduce_kernel<decltype(zero), decltype(sums)::value>
        <<<header.blocks, kThreads, 0, stream>>>(peers, header, elements.op, reduce);
  });
  check_launch("a reduction over ranks");
}

void launch_one_shot(const Peers& peers, const Header& header, const Elements& elements,
                     const OneShot& call, cudaStream_t stream) {
  with_kernel(elements.dtype, elements.op, [&](auto zero, auto sums) {
    one_shot_kernel<decltype(zero), decltype(sums)::value>
        <<<header.blocks, kThreads, 0, stream>>>(peers, header, elements.op, call);
  });
  check_launch("a small all-reduce");
}

void launch_two_shot(const Peers& peers, const Header& header, const Elements& elements,
                     const TwoShot& call, cudaStream_t stream) {
  with_kernel(elements.dtype, elements.op, [&](auto zero, auto sums) {
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
      with_kernel(dtype, op, [&](auto zero, auto sums) {
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
