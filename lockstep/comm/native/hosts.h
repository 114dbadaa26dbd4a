// Emulated nodes: comm.emulated_nodes splits the ranks of one machine, in order, into several
// emulated nodes. Ranks of one emulated node share memory; between two of them everything goes by
// messages, over the emulated link of comm.emulate if it is set. All ranks of an emulated node
// share its NIC.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/native/fabric.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/transport/paced_channel.h"

namespace lockstep {

// The node of every rank of the world for communicators: the emulated node if nodes are emulated.
// Throws Error(kUnsupported) if the ranks are on several machines, and Error(kInvalidArgument) for
// more emulated nodes than ranks.
std::vector<int> seen_machines(const Fabric& fabric, const CommOptions& options);

// The NIC of this rank, or of its emulated node; null if links are not emulated. Called by all
// ranks of the world; `tag` must not be that of a communicator.
std::shared_ptr<transport::EmulatedNic> make_nic(Fabric& fabric, const CommOptions& options,
                                                 std::uint64_t tag);

}  // namespace lockstep
