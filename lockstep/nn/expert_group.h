// The ranks that divide the experts of a mixture (docs/mesh.md, "Expert parallelism").
//
// Rank j of e has the experts [j E/e, (j + 1) E/e), whole, and everything else as in data
// parallelism: the ranks of a group have different sequences. Tokens travel to the ranks of their
// experts and back (nn/expert_axis.h).
//
// A layer is two blocks then (nn/blocks/divided_layer.h): one whose parameters all workers hold,
// and one of experts alone, whose parameters only every e-th worker holds. So whoever reduces,
// shards or compares parameters asks for the group of a block, and never for that of a parameter.
#pragma once

#include <cstdint>

namespace lockstep::nn {

struct ExpertGroup {
  int size = 1;
  int rank = 0;
  friend bool operator==(const ExpertGroup&, const ExpertGroup&) = default;
};

}  // namespace lockstep::nn
