// The optimizer step of a replica whose gradients are final.
//
// It is computed in the tier of the optimizer states (nn/parameters/tiers.h). Gradients and
// parameters in another tier are copied in chunks, the next chunk during the update of the current
// one:
//
//   compute   |           | update 0    | update 1             | update 2 ...
//   mover     | fetch 0   | fetch 1     | store 0, fetch 2     | store 1, ...
#pragma once

#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/gradients/model_norm.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

// Computes the global norm, clips, updates the master copy and rounds the parameters. Changes
// nothing if a gradient is infinite or NaN. Complete on return.
UpdateResult local_update(nn::Replica& replica, TierMover& mover, const UpdateRequest& request);

// The first half: the global norm, and whether it skips.
UpdateResult norm_of_update(nn::Replica& replica, TierMover& mover, const UpdateRequest& request);

// What an update returns whose gradients have that norm with the loss scale in it.
UpdateResult result_of(ModelNorm norm, double loss_scale);

// The second half for elements that are updated alike, at the addresses that `ops` use. `rounds`:
// the parameters are a rounded copy of the master.
void update_elements(Ops& ops, const UpdateRequest& request, double gradient_norm, bool rounds,
                     const nn::States& states, bool decays);

// The states of a block that a delayed update works with: the delayed gradients in the place of the
// flat buffer, and so the next parameters where there are such.
nn::States delayed_states(const nn::Replica& replica, std::size_t block);

// The second half for one block of a delayed update (nn/parameters/tiers.h): reads the delayed
// gradients and writes the next parameters, or changes the only ones. Complete after
// Ops::synchronize().
void update_delayed(nn::Replica& replica, Ops& ops, std::size_t block, const UpdateRequest& request,
                    double gradient_norm);

// The sum of squares of each chunk (parallel/gradients/gradient_chunks.h) of this worker's
// gradients of a block, in any tier. `workspace`: see there.
std::vector<double> sums_of_mine(nn::Replica& replica, Ops& ops, TierMover& mover,
                                 std::size_t block, const Tensor& workspace);

// In a tensor group, what replicated_squares() returns (parallel/gradients/model_norm.h) of this
// worker's gradients in any tier; empty where none divides the model.
std::vector<double> replicated_squares_of_mine(nn::Replica& replica, TierMover& mover);

// The second half for this worker's shard of one block, once the norm is known: updates the master
// copy and rounds the parameters, with `ops` of the tier where the update is computed. Complete
// after Ops::synchronize().
void update_mine(nn::Replica& replica, Ops& ops, TierMover& mover, std::size_t block,
                 const UpdateRequest& request, double gradient_norm);

}  // namespace lockstep::parallel
