// The computations of a step, numbered, and what each of them needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::plan {

enum class Phase : std::uint8_t { kForward, kInputGradient, kWeightGradient };

struct Computation {
  Phase phase = Phase::kForward;
  int virtual_stage = 0;
  int micro_batch = 0;
  int slice = 0;
  friend bool operator==(const Computation&, const Computation&) = default;
};

// Lets every stage advance as far as it can: up the stages, as forward goes, and down, as backward
// comes. Whether one of them advanced. `advance(stage)`: by one action, if it can.
template <class Advance>
bool advance_all(int stages, Advance&& advance) {
  bool progress = false;
  for (int stage = 0; stage < stages; ++stage) {
    while (advance(stage)) progress = true;
  }
  for (int stage = stages; stage-- > 0;) {
    while (advance(stage)) progress = true;
  }
  return progress;
}

// How many there are, and the number of each, from 0.
std::size_t computation_count(const PipelineShape& shape);
std::size_t index_of(const PipelineShape& shape, const Computation& computation);

// What an action computes: nothing, one, or, with a whole backward, two computations.
std::vector<Computation> computed_by(const PipelineShape& shape, int stage, const Action& action);

// What an action reads, from this stage or a neighbour. An update needs all gradients of the
// weights of its batch on its stage.
std::vector<Computation> needed_by(const PipelineShape& shape, int stage, const Action& action);

// The virtual stage that reads the result of a forward or of an input gradient; none at the ends of
// the model and for gradients of weights.
std::optional<int> reader_of(const PipelineShape& shape, const Computation& computation);

// The computation whose result a message carries. Its virtual stage is outside of the model for a
// message that cannot be.
Computation carried_by(const PipelineShape& shape, int stage, const Action& message);

}  // namespace lockstep::plan
