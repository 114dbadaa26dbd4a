// An optimizer's step over a whole replica whose gradients are complete.
#pragma once

#include "lockstep/nn/replica.h"
#include "lockstep/parallel/strategy.h"

namespace lockstep::parallel {

// Takes the norm of all gradients, clips, moves the master copy and rounds the parameters. Changes
// nothing where a gradient is infinite or no number. Done on return.
UpdateResult local_update(nn::Replica& replica, const UpdateRequest& request);

// The second half for this worker's part of one block, where the norm is known: moves the master
// copy and rounds the parameters. Done after Ops::synchronize().
void update_mine(nn::Replica& replica, std::size_t block, const UpdateRequest& request,
                 double gradient_norm);

}  // namespace lockstep::parallel
