// Plans when sharded parameters are gathered.
//
// A step of the schedule (nn/memory/memory_plan.h) reads some units. Each is gathered during the
// step before, unless that would exceed max_unsharded_blocks, else when its own step begins; it is
// freed when the next step does not read it.
//
//   step           0        1        2        3        4        5
//   reads          e        0        1        h e      h e      1
//   there          e 0      0 1      1 e      e h      e h      1 ...      two at once
//
// So a unit that both the last forward and the first backward read is gathered once, and one that
// no backward reads is gathered once, too. With reshard_after_forward every unit is gathered twice,
// for forward and for backward, as the ZeRO paper counts: a unit that was gathered only once before
// the first backward is freed and gathered again there, and one that no backward reads is gathered
// for its own block's. (Here e was gathered for step 0 and step 3, and stays; h is resharded.)
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::nn {

struct Gather {
  std::size_t unit = 0;
  int starts = 0;  // the step at whose beginning it can be gathered
  int needed = 0;  // the first that reads it
  int last = 0;    // the last that does
  friend bool operator==(const Gather&, const Gather&) = default;
};

struct GatherRules {
  int max_unsharded_blocks = 2;  // at once; a step that reads more gets all of them
  bool reshard_after_forward = false;
  // Steps that do not always follow the step before: what one computation of a pipeline stage has
  // gathered is gone when the next one begins.
  std::vector<int> restarts = {};
};

// `reads` has the units of each step, those first that take longest, of as many steps of backward
// as of forward; a unit is called by the step of its own block's forward. In the order in which
// they are to be gathered.
std::vector<Gather> plan_gathers(std::vector<std::vector<std::size_t>> reads,
                                 const GatherRules& rules);

}  // namespace lockstep::nn
