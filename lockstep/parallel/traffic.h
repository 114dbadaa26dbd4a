// What a worker sends in a step, before there are any workers: the bytes that a run then reports.
//
//   ddp             every gradient is reduced and shared                       2 P
//   ZeRO 1          gradients handed to their holders, parameters gathered     2 P
//   ZeRO 2          the same, gradients after every micro-batch                (A + 1) P
//   ZeRO 3          parameters gathered for forward and for backward too       3 A P, less the last
//                                                                              block's, which stay
//
// P: elements of the row of parameters with its padding, in the type that each is sent in; A:
// micro-batches of a worker. Of each a worker sends the (N-1)/N that are not its own.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/nn/memory_plan.h"
#include "lockstep/parallel/footprint.h"
#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

struct Traffic {
  std::uint64_t gradients = 0;
  std::uint64_t parameters = 0;
  std::uint64_t rows = 0;  // of a table of tokens (parallel/table_rows.h)

  std::uint64_t total() const { return gradients + parameters + rows; }
};

// Of one of crew.workers; `plan` was made for them (parallel/footprint.h). On several machines it
// is the same, by another way. Nothing where it is not known here: with parameter servers,
// compressed gradients, and ZeRO++, which sends less.
std::optional<Traffic> traffic_of(const ParallelOptions& options, const Crew& crew,
                                  const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
