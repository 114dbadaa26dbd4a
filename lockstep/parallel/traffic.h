// What a worker sends in a step, before there are any workers: the bytes that a run then reports.
//
//   ddp             every gradient is reduced and shared                       2 P
//   ZeRO 1          gradients handed to their holders, parameters gathered     2 P
//   ZeRO 2          the same, gradients after every micro-batch                (A + 1) P
//   ZeRO 3          parameters gathered for forward and for backward too       3 A P, less the last
//                                                                              block's, which stay
//
// P: elements of the row of parameters with its padding, in the type that each is sent in; A:
// micro-batches of a worker. Of each a worker sends the (N-1)/N that are not its own. ZeRO++ sends
// less: each in the payloads of parallel/zero/part_wire.h, and with a secondary partition
// parameters cross to other machines once a step.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/nn/memory_plan.h"
#include "lockstep/parallel/footprint.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/sent_bytes.h"

namespace lockstep::parallel {

struct Traffic {
  SentBytes gradients;
  SentBytes parameters;
  SentBytes rows;  // of a table of tokens (parallel/table_rows.h)

  SentBytes total() const { return gradients + parameters + rows; }
};

// Of crew.workers on options.machines; `plan` was made for them (parallel/footprint.h). What takes
// which link is known where options.comm makes the machines up (comm/native/planned_calls.h). Of a
// step between whose update and the last one nothing else was gathered, a validation or a sample:
// what these brought to a secondary partition does not cross again. Nothing where it is not known
// here: with parameter servers and compressed gradients.
std::optional<Traffic> traffic_of(const ParallelOptions& options, const Crew& crew,
                                  const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
