// The time that a step with states on the host takes at least, from what its parts take alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::bench {

// Bytes over the bus, towards the host and towards the device.
struct BusBytes {
  double down = 0;
  double up = 0;
};

struct StepParts {
  std::int64_t micro_batches = 1;
  double compute_seconds = 0;  // of a micro-batch
  double forward_seconds = 0;  // of these
  double update_seconds = 0;   // of the host's update
  double down_rate = 0;        // bytes a second
  double up_rate = 0;
  BusBytes micro_batch;  // during each
  BusBytes update;
  bool overlaps = true;  // the update, with the next forward
  bool delayed = false;  // the update is computed during the next step
};

// What a plan moves, of a single worker.
BusBytes bytes_of_micro_batch(const nn::MemoryPlan& plan, std::int64_t micro_batches);
BusBytes bytes_of_update(const nn::MemoryPlan& plan);

// With m micro-batches of C seconds, of which F are forward, an update of U and copies of D and H
// (each is the longest of compute and its copies, both ways at once):
//
//   awaited      m C + U
//   overlapped   m C + max(0, U - F)      the update begins after the last backward, and the next
//                                         backward needs all parameters
//   delayed      max(m C, U, D, H)        the longest part
double critical_path(const StepParts& parts);

}  // namespace lockstep::bench
