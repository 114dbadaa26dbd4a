// Which buffers the micro-batches of a pipeline stage use, from its step schedule.
//
// A stage computes one thing at a time, but several micro-batches are between their forward and
// their backward, and messages travel beside compute. A chunk of a stage therefore has pools of
// equal buffers, and every micro-batch gets one of each:
//
//   slot             what blocks keep             from forward to the end of backward
//   input            the activation that came     from the computation during which it may come, to
//                                                 the end of backward, which reads it once more
//   gradient         the gradient that came       the same
//   output           the activation that leaves   from forward to the end of the next computation
//   input gradient   the gradient that leaves     from backward to the end of the next computation
//   weight input     what weight gradients need   from the input gradient to the weight gradient,
//                                                 where backward is split. The rest of a
//                                                 micro-batch is free after the input gradient
//
// A message stands between two computations of a stage's list. Its receive is posted before the
// first of them begins, so that it travels meanwhile. Buffers that leave may still be on their way
// when their pool comes around to them: then the stage waits.
//
// Slices of a micro-batch share its buffers: each is a range of their rows. So a buffer lives from
// its first slice to its last.
//
// A buffer's lifetime is a range of the stage's computations, counted from 0. The first free buffer
// of a pool is taken, so a pool is as large as the most that are alive at once.
//
// A schedule of several batches does not empty the pipeline between them, and any number of batches
// may follow. Its micro-batches are made and freed in one order, so they take the buffers of a pool
// in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::plan {

// Buffers of each kind: how many a chunk has, or which one a computation uses, and which slice of
// them.
struct BufferCounts {
  static constexpr int kAllSlices = -1;

  int slots = 0;
  int inputs = 0;
  int gradients = 0;
  int outputs = 0;
  int input_gradients = 0;
  int weight_inputs = 0;
  int slice = kAllSlices;
  friend bool operator==(const BufferCounts&, const BufferCounts&) = default;
};

struct StageBuffers {
  std::vector<BufferCounts> chunks;             // how many
  std::vector<std::vector<BufferCounts>> uses;  // which one, by chunk and micro-batch
  bool has_slices = false;
  bool in_turn = false;     // `uses` is empty
  int weight_versions = 1;  // of the schedule

  // The buffers of a micro-batch. Where they are taken in turn it counts from the last moment at
  // which the pipeline was empty, without an end.
  BufferCounts of(int chunk, std::int64_t micro_batch) const;

  // Whether every computation has a whole micro-batch, and none begins before the last one has
  // ended.
  bool one_at_a_time() const {
    return !has_slices && chunks.size() == 1 && chunks[0].slots == 1 &&
           chunks[0].weight_inputs == 0;
  }
};

// With slices, for a schedule of one batch.
StageBuffers stage_buffers(const StepSchedule& schedule, int stage);

}  // namespace lockstep::plan
