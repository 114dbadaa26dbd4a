// Emulated machines: comm.emulated_nodes deals out the ranks of one machine, in order, to several
// that are made up. Ranks of the same one share memory as ever; between two of them everything goes
// by messages, over the emulated link of comm.emulate where there is one. Its NIC is the
// machine's: all its ranks share it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/native/fabric.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/transport/paced_channel.h"

namespace lockstep {

// The machine of every rank of the world, as communicators are to see it: the emulated one where
// there are any. Error for ranks on several machines already (kUnsupported), and for more emulated
// ones than ranks (kInvalidArgument).
std::vector<int> seen_machines(const Fabric& fabric, const CommOptions& options);

// The NIC of this rank, or of its emulated machine; null where links are not emulated.
// Called by all ranks of the world alike; `tag` is one that no communicator has.
std::shared_ptr<transport::EmulatedNic> make_nic(Fabric& fabric, const CommOptions& options,
                                                 std::uint64_t tag);

}  // namespace lockstep
