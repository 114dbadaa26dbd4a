// A line of metrics.jsonl: one step as a JSON object.
//
//   step            from 1
//   loss            the mean over all targets
//   val_loss        on data that is held back; only where it was taken after this step
//   lr              the learning rate
//   grad_norm       before clipping, without the loss scale; where it was computed
//   tokens          of the step
//   tokens_per_s    tokens over step_ms
//   step_ms         computing; beside it
//   data_ms         waiting for the batch
//   checkpoint_ms   in which a checkpoint kept the run waiting, since the step before; only where
//                   there was any, as with the next two
//   checkpoint_background_ms   from begin to end, of a checkpoint that was written beside steps
//                   and was completed since the step before
//   validation_ms   after the step
//   memory_bytes    the most that the process has had in RAM
//   file_read_bytes     by worker 0; this and the next two only where something lies in files
//   file_written_bytes
//   file_wait_ms        in which compute waited for these
//   ranks               of the run in this step; this and all up to slowest_ms only with several
//   compute_ms          from the first micro-batch to the update, without waiting, the mean over
//                       workers (where they do not wait for each other of the last share of each,
//                       as far as worker 0 has heard of it)
//   communication_ms    in which something was being sent or received, the mean over workers
//   exposed_ms          the part of it in which compute waited for it, the mean over workers
//   exposed_max_ms      the same of the worker that waited longest
//   bytes_sent          of parameters and gradients, as they went out, of all workers together,
//                       with what servers sent to them
//   bytes_across        the part of it from node to node; only where there are several
//                       nodes
//   staleness           updates of others that gradients did not know of, the mean over workers; 0
//                       where workers wait for each other; with late updates that of the step
//                       before
//   staleness_max       the same of the worker whose gradients knew least
//   slowest_rank        that computed longest; this and the next where more than one is known of
//   slowest_ms          its compute
//   loss_scale      of f16 alone
//   skipped         whether the step changed nothing, its gradient being infinite or NaN
//
// Numbers are the shortest decimals that read back to the same bits. JSON has no way to write an
// infinite number or what is none: they are null.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/train/observe/observer.h"

namespace lockstep::train {

// With the line's end.
std::string metrics_line(const StepRecord& record, bool with_loss_scale);

// Parses a line, with or without its line break. Returns nothing for a torn line and for one
// without a step. A null or missing number is NaN; a missing integer is 0.
std::optional<StepRecord> parse_metrics_line(std::string_view line);

}  // namespace lockstep::train
