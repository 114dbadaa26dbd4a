// The mesh of a job whose ranks divide a model (plan/mesh/mesh.h).
#pragma once

#include <optional>

#include "lockstep/parallel/strategy/options.h"
#include "lockstep/plan/mesh/mesh.h"

namespace lockstep::parallel {

// Nothing where every rank is a worker of its own. Throws Error(kInvalidArgument) for ranks that
// the axes do not divide.
inline std::optional<plan::Mesh> mesh_of_job(const ParallelOptions& options, int ranks) {
  if (ranks_per_model(options) == 1) return std::nullopt;
  return plan::mesh_of(ranks, {.data = 0,
                               .pipeline = options.pipeline,
                               .tensor = options.tensor,
                               .context = options.context,
                               .expert = options.expert});
}

}  // namespace lockstep::parallel
