// When every action of a step schedule runs, with given times of computations and messages.
//
// A stage computes its actions in order, each as soon as the computations that it needs are there.
// Messages travel beside compute: a send leaves when its computation has ended, and a stage waits
// only for the messages that its next computation needs. Messages from one stage to another travel
// one after the other. Updates take no time.
#pragma once

#include <vector>

#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::plan {

// Times of one micro-batch on one stage: all its chunks and slices together.
struct StepTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double message = 0;          // of one activation or gradient
  std::vector<double> slices;  // each slice's part of the time, 1 in sum; empty: equal parts

  // Of a computation; an update takes 0.
  double of(const PipelineShape& shape, const Action& action) const;
};

struct ActionSpan {
  double begin = 0;
  double end = 0;
};

struct Timetable {
  std::vector<std::vector<ActionSpan>> stages;  // as in StepSchedule::stages
  std::vector<double> busy;                     // time that every stage computes
  std::vector<ActionSpan> active;               // from every stage's first computation to its last
  double end = 0;                               // of the last action

  // Idle time relative to the ideal, the busiest stage's own work: (end - busy) / busy. The next
  // step starts when all stages have ended, as with clipping by the norm of all gradients.
  double bubble() const;
  // The same when each stage starts its next step as soon as it has ended this one: the longest
  // time from a stage's first computation to its last takes the place of `end`.
  double bubble_without_barrier() const;
};

// The schedule is one that verify() accepts, or such a one without its messages: computations run
// at the same times. Throws Error(kInvalidArgument) when stages wait for each other forever.
Timetable simulate(const StepSchedule& schedule, const StepTimes& times);

}  // namespace lockstep::plan
