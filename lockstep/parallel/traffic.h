// What a worker sends in a step, before there are any workers: the bytes that a run then reports.
//
// It is counted by *units*, blocks of the flat buffer of parameters with their padding, in the type
// that each is sent in. How often a unit goes out; A: micro-batches of a worker:
//
//             gradients                        parameters
//   ddp       2: reduced and shared
//   ZeRO 1    1                                1
//   ZeRO 2    A, or 1 where they are held      1
//   ZeRO 3    the same                         A times as often as it is gathered
//
// Of each a worker sends the (N-1)/N that are not its own. nn/memory/gather_plan.h says how often a
// unit is gathered: for forward and for backward, but the last block's once, and so is a table of
// tokens that has no part in logits; one that three blocks read in forward three times. With
// parallel.reshard_after_forward = false it is twice at least, and ZeRO 3 sends three times the
// parameters.
//
// Ddp sends just twice the parameters where it does not overlap. Else the gradient of a large table
// of tokens is only reduced for its parts from logits and earlier micro-batches, and the rows that
// a worker has of it go to each other one (parallel/ddp/table_rows.h).
//
// ZeRO++ sends less: each in the payloads of parallel/zero/part_wire.h, and with a secondary
// partition parameters cross to other machines once a step.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/communication/sent_bytes.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

// Of position.workers on options.machines; `plan` was made for them (parallel/footprint.h). What
// takes which link is known where options.comm makes the machines up (comm/native/planned_calls.h).
// Of a step between whose update and the last one nothing else was gathered, a validation or a
// sample: what these brought to a secondary partition does not cross again. Nothing where it is not
// known here: with parameter servers and compressed gradients.
std::optional<Traffic> traffic_of(const ParallelOptions& options, const WorkerPosition& position,
                                  const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
