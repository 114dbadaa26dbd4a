// When the parameters of blocks are gathered that workers hold parts of.
//
// A step of the schedule (nn/memory/memory_plan.h) reads some units. Each is gathered while the
// step before runs, as long as no more than so many are there at once, else when its own step
// begins; and it goes when the next step does not read it.
//
//   step           0        1        2        3        4        5
//   reads          e        0        1        h e      h e      1
//   there          e 0      0 1      1 e      e h      e h      1 ...      two at once
//
// So what the last forward reads stays for the first backward, the *turn*, and what no backward
// reads comes once. As ZeRO's authors count, every unit comes twice, for forward and for backward:
// then one that came once until the turn goes there and comes again, and one that no backward reads
// comes for that of its own block. (Here e came for step 0 and for step 3, and stays; h goes.)
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
  int max_unsharded_blocks = 2;  // at once; a step that reads more gets them
  bool reshard_after_forward = false;
};

// `reads` has the units of each step, those first that take longest, of as many steps of backward
// as of forward; a unit is called by the step of its own block's forward. In the order in which
// they are to be gathered.
std::vector<Gather> plan_gathers(std::vector<std::vector<std::size_t>> reads,
                                 const GatherRules& rules);

}  // namespace lockstep::nn
