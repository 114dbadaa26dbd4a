// Collectives between ranks of one node, with one pass over memory where possible:
//
//   inline     up to kInlineBytes, 1 or 4 KiB: the payload travels in the post
//   symmetric  all ranks map the buffers: rank r reads slice r of all inputs, reduces in
//              registers and stores the result into all outputs; or it writes what it gives into
//              all outputs, or reads what it gets from all inputs; two synchronisations, no copies
//   one-shot   small and private: every rank copies its input to a slot the others can see, then
//              each reads what it needs from all slots; one synchronisation
//   windowed   private buffers: the same through windows that stay in cache; one synchronisation
//              a window, copying in and reducing overlap
//
// Contributions are combined in rank order, 16-bit floats in 32 bits with one rounding, so every
// path and every rank gives the same bits.
#pragma once

#include <string_view>

#include "lockstep/comm/call.h"
#include "lockstep/comm/shared/group.h"

namespace lockstep::shared {

// Whether these paths support the call; other calls run a schedule.
bool serves(const Call& call);

// The largest payload that goes one-shot among `ranks` ranks. Above it the second synchronisation
// of the other paths costs less than reading the input of every rank.
std::size_t one_shot_limit(Collective kind, int ranks);

// Runs a validated call of a group that is the whole communicator.
void run(Group& group, const Call& call, const Fingerprint& fingerprint);

}  // namespace lockstep::shared
