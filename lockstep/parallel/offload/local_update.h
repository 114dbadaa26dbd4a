// An optimizer's step over a whole replica whose gradients are complete.
//
// It is computed in the tier of the optimizer's states (nn/parameters/tiers.h). Gradients and
// parameters that lie in another one come and go piece by piece, the next piece while one is
// computed:
//
//   compute   |           | update 0    | update 1             | update 2 ...
//   mover     | fetch 0   | fetch 1     | store 0, fetch 2     | store 1, ...
#pragma once

#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

// Takes the norm of all gradients, clips, moves the master copy and rounds the parameters. Changes
// nothing where a gradient is infinite or NaN. Done on return.
UpdateResult local_update(nn::Replica& replica, TierMover& mover, const UpdateRequest& request);

// The sum of squares of each chunk (parallel/gradients/gradient_chunks.h) of this worker's part of
// a block's gradients, wherever they lie. `workspace` as there.
std::vector<double> sums_of_mine(nn::Replica& replica, Ops& ops, TierMover& mover,
                                 std::size_t block, const Tensor& workspace);

// The second half for this worker's part of one block, where the norm is known: moves the master
// copy and rounds the parameters, by the replica's operations or others of the tier where it is
// computed. Done after Ops::synchronize().
void update_mine(nn::Replica& replica, Ops& ops, TierMover& mover, std::size_t block,
                 const UpdateRequest& request, double gradient_norm);

}  // namespace lockstep::parallel
