// One kernel for each collective. All ranks launch it with the same header; it ends at all of them
// together, or reports why not (comm/cuda/control.h).
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/comm/cuda/control.h"
#include "lockstep/comm/reduce_op.h"

namespace lockstep::cuda {

// Every rank copies from others: `bytes[r]` from rank r into out + first[r]. `card.first_for` says
// what others may copy from here.
struct Move {
  Card card;
  std::byte* out;
  std::uint64_t first[kMostRanks] = {};
  std::uint64_t bytes[kMostRanks] = {};
};
void launch_move(const Peers& peers, const Header& header, const Move& move, cudaStream_t stream);

struct Elements {
  DType dtype;
  ReduceOp::Kind op;
};

// out = elements [first, first + count) of all ranks' `card.in`, combined.
struct Reduce {
  Card card;
  std::byte* out;
  std::uint64_t first;
  std::uint64_t count;
};
void launch_reduce(const Peers& peers, const Header& header, const Elements& elements,
                   const Reduce& reduce, cudaStream_t stream);

// All-reduce: through Peers::small, from anywhere to anywhere.
struct OneShot {
  const std::byte* in;
  std::byte* out;
  std::uint64_t count;
};
void launch_one_shot(const Peers& peers, const Header& header, const Elements& elements,
                     const OneShot& call, cudaStream_t stream);

// All-reduce: every rank combines its part into `card.out`, then copies the parts of others there.
struct TwoShot {
  Card card;
  std::uint64_t count;
};
void launch_two_shot(const Peers& peers, const Header& header, const Elements& elements,
                     const TwoShot& call, cudaStream_t stream);

void launch_barrier(const Peers& peers, const Header& header, cudaStream_t stream);

// Loads all kernels, which could not happen while one of them waits.
void load_kernels();

}  // namespace lockstep::cuda
