// PyTorch over Gloo as a peer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/bench/data_parallel/session.h"

namespace lockstep::bench::data_parallel {

// A way to run it: a script of the peers' folder, started once for each rank with the variables of
// torchrun, that trains a GPT-2 of given sizes and leaves its times as JSON.
struct PeerWay {
  std::string_view name;
  std::string_view script;
  std::vector<std::string> arguments;  // besides precision and sizes
};
// DistributedDataParallel, eager and compiled, gradients reduced in f32 and in bf16.
std::span<const PeerWay> ddp_ways();

// Adds a turn for each. One that cannot run has its problem already. The ways outlive the turns.
void add_peers(Session& session, std::string_view name, const train::RunOptions& options,
               std::span<const PeerWay> ways, std::vector<Turn>& turns);

}  // namespace lockstep::bench::data_parallel
