// The norm of all gradients, added up by workers that hold parts of them: to the bit what
// parallel/gradients/gradient_chunks.h makes of the whole flat buffer.
//
// A chunk that lies in one worker's part is added up there. Of a chunk that parts cut, each worker
// tells the sums of its runs (ops::SumOfSquares), and all add these up in their order.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/step_waits.h"

namespace lockstep::parallel {

class ShardedNorm {
 public:
  ShardedNorm() = default;
  ShardedNorm(const nn::FlatParameters& flat, const nn::Shards& shards, int workers, int worker);

  // Called by all workers, when everybody's parts are complete. Infinite or NaN where a gradient
  // is.
  // The time in which all meet is added to `waits`.
  double take(Communicator& world, nn::Replica& replica, TierMover& mover, StepWaits& waits) const;

 private:
  // A worker's part of one chunk.
  struct Piece {
    std::size_t block = 0;
    std::size_t chunk = 0;  // among all of the flat buffer
    nn::FlatRange range;    // in the whole flat buffer
    bool is_whole = false;  // all of its chunk
    std::size_t numbers() const;
  };
  std::vector<double> numbers_of_mine(nn::Replica& replica, TierMover& mover) const;
  static std::vector<Piece> pieces_of(const nn::FlatParameters& flat, const nn::Shards& shards,
                                      int worker);

  std::vector<std::vector<Piece>> pieces_;  // of each worker, in the order of the flat buffer
  std::size_t chunks_ = 0;
  std::size_t most_numbers_ = 0;  // of a worker
  int worker_ = 0;
};

}  // namespace lockstep::parallel
