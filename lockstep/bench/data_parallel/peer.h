// PyTorch's DistributedDataParallel over Gloo, as a rival of our ranks.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/bench/data_parallel/session.h"

namespace lockstep::bench::data_parallel {

// Adds a turn for each way to run it: eager and compiled, gradients reduced in f32 and in bf16. One
// that cannot run has its problem already.
void add_peers(Session& session, std::string_view name, const train::RunOptions& options,
               std::vector<Turn>& turns);

}  // namespace lockstep::bench::data_parallel
