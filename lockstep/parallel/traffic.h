// Predicts what a worker sends in a step: the bytes that a run then reports.
//
// It is counted by *units*, blocks of the flat buffer of parameters with their padding, in the type
// that each is sent in. How often a unit is sent; A: micro-batches of a worker:
//
//             gradients                        parameters
//   ddp       2: reduced and shared
//   ZeRO 1    1                                1
//   ZeRO 2    A, or 1 where they are held      1
//   ZeRO 3    the same                         A times as often as it is gathered
//
// Of each, a worker sends (N-1)/N. nn/memory/gather_plan.h says how often a unit is gathered: once
// for forward and once for backward; once in all for the last block, and for a token embedding that
// is not tied to logits; and three times in forward if three blocks read it. With
// parallel.reshard_after_forward = true it is at least twice, and ZeRO 3 sends three times the
// parameters.
//
// Ddp without overlap sends twice the parameters. With overlap, only the dense part of the gradient
// of a large token embedding is reduced, and a worker's rows are sent to every other worker
// (parallel/ddp/table_rows.h).
//
// ZeRO++ sends less: payloads of parallel/zero/part_wire.h, and with a secondary partition
// parameters cross to other nodes once a step.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/communication/sent_bytes.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

// For position.workers on options.machines nodes; `plan` was made for them (parallel/footprint.h).
// Bytes by link are known if options.comm emulates the nodes (comm/native/planned_calls.h). Assumes
// that no validation or sample gathered parameters since the last update: what these brought to a
// secondary partition is not sent again. Nothing if it is unknown: with parameter servers or
// compression, and where an expert group is on several nodes.
std::optional<Traffic> traffic_of(const ParallelOptions& options, const WorkerPosition& position,
                                  const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
