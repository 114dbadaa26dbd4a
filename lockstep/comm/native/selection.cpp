#include "lockstep/comm/native/selection.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/shared/collectives.h"

namespace lockstep {

Selector::Selector(std::vector<int> machines, bool fused, const CommOptions& options)
    : fused_(fused), options_(options) {
  shape_.ranks = static_cast<int>(machines.size());
  shape_.machines = std::move(machines);
  for (std::size_t kind = 0; kind < fused_by_default_.size(); ++kind) {
    const std::string_view forced = options_.algorithm(static_cast<Collective>(kind));
    fused_by_default_[kind] = fused_ && (forced == kAutoAlgorithm || forced == kFused);
  }
}

bool Selector::is_fused(const Call& call) const {
  if (!call.algorithm.empty()) return fused_ && call.algorithm == kFused && shared::serves(call);
  return fused_by_default_[static_cast<std::size_t>(call.kind)] && shared::serves(call);
}

Choice Selector::choose(const Call& call) const {
  if (is_fused(call)) return {std::string(kFused), "all ranks share one machine"};
  std::string forced = call.algorithm;
  if (forced.empty() && options_.algorithm(call.kind) != kAutoAlgorithm) {
    forced = options_.algorithm(call.kind);
  }
  if (!forced.empty()) return {forced, "forced"};
  return {"ring", "default"};
}

}  // namespace lockstep
