// Names of chunks, blocks and contributions in explanations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/schedule/symbolic.h"

namespace lockstep::cli {

// "the vector", "chunk 2", "chunks 0-3", "block 5", "0>2" (what 0 gives to 2).
std::string name_chunks(const schedule::Schedule& schedule,
                        const std::vector<schedule::Cell>& cells);
std::string name_chunk(const schedule::Schedule& schedule, int chunk);

// Whose contributions a cell has: "0+3", "4-7", "all"; where nothing is combined, "yes"; "-" for
// nothing.
std::string name_contributions(const schedule::Schedule& schedule, const schedule::Cell& cell);

// The chunks whose whereabouts are shown: all, or of all_to_all those that a rank is to get.
int shown_chunks(const schedule::Schedule& schedule);
int shown_chunk(const schedule::Schedule& schedule, int rank, int column);

}  // namespace lockstep::cli
