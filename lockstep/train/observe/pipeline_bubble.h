// The bubble of a pipeline, read from a trace: the time in which stages wait, relative to the time
// in which they compute. It is plan::Timetable::bubble() of what really happened.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "lockstep/parallel/trace/trace.h"

namespace lockstep::train {

// Of every step that all ranks have: (end - busy) / busy. `end` is the time from the first
// computation of any rank to the last one's end, `busy` the time that the busiest rank computes in
// it. Where a step begins before all ranks have ended the one before, nothing empties the pipeline
// between them: then `end` is the longest time of a rank from the end of its last step to the end
// of this one. Forward and backward count, updates do not. Times of all ranks are of one clock.
// Empty where no stage waits for another: the trace is of no pipeline.
std::map<std::int64_t, double> pipeline_bubbles(std::span<const parallel::RankTrace> ranks);

}  // namespace lockstep::train
