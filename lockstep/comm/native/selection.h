// Which algorithm serves a call: what the caller or the configuration forces, else shared memory
// where all ranks share a machine, else the cheapest schedule for the links there are.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/schedule/schedule.h"

namespace lockstep {

// The name under which the shared-memory collectives can be forced.
inline constexpr std::string_view kFused = "fused";

class Selector {
 public:
  // `machines` of the members; `fused` whether all of them share memory.
  Selector(std::vector<int> machines, bool fused, const CommOptions& options);

  // Whether the call goes through shared memory; choose() would name kFused.
  bool is_fused(const Call& call) const;
  Choice choose(const Call& call) const;
  const schedule::Shape& shape() const { return shape_; }

 private:
  schedule::Shape shape_;
  bool fused_;
  CommOptions options_;
  std::array<bool, 16> fused_by_default_{};  // by collective
};

}  // namespace lockstep
