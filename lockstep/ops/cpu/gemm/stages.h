// The order in which a product is gone through: panel by panel of the shared side, and each panel's
// depth stage by stage.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/ops/cpu/team/team.h"

namespace lockstep::cpu::gemm {

// f(lines of a panel, depth of a stage) for all of them. A depth of zero is one empty stage: what
// is finished are zeros.
template <class F>
void for_each_stage(std::size_t lines, std::size_t panel, std::size_t whole_depth,
                    std::size_t depth, F&& f) {
  for (std::size_t line = 0; line < lines; line += panel) {
    std::size_t from = 0;
    do {
      const std::size_t end = std::min(whole_depth, from + depth);
      f(Range{line, std::min(lines, line + panel)}, Range{from, end});
      from = end;
    } while (from < whole_depth);
  }
}

}  // namespace lockstep::cpu::gemm
