// The global norm of sharded gradients, with the same bits as parallel/gradients/gradient_chunks.h
// for the whole flat buffer.
//
// A chunk that is on one worker is summed there. For a chunk that is divided between workers, each
// worker sends the sums of its runs (ops::SumOfSquares), and all add these in order.
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
  explicit ShardedNorm(const nn::MemoryPlan& plan);

  // The sums of squares of all chunks of the flat buffer, in order (parallel/gradients/model_norm.h
  // has their norm). Called by all workers when all gradients are final. Infinite or NaN if a
  // gradient is. Those of experts are of this worker's (nn/expert_group.h). The time of the
  // exchange is added to `waits`.
  std::vector<double> take(Communicator& world, nn::Replica& replica, TierMover& mover,
                           StepWaits& waits) const;

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
  nn::Sharding sharding_;
  std::vector<bool> has_experts_;  // of every block
};

}  // namespace lockstep::parallel
