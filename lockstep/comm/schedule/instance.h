// A Schedule is an algorithm made concrete for a shape: the programs of all ranks, and what its
// chunks are. Verifier, cost model and drawings work on it.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/comm/schedule/build.h"
#include "lockstep/comm/schedule/schedule.h"

namespace lockstep::schedule {

struct Schedule {
  Collective collective = Collective::kAllReduce;
  std::string_view algorithm;
  Shape shape;
  int chunks = 1;                 // of the vector, or of each block
  std::vector<Program> programs;  // by rank
};

// Throws Error(kInvalidArgument) for a shape that makes no sense (no ranks, a root that is none of
// them, machines that do not fit) and Error(kUnsupported) where the algorithm refuses it.
Schedule make_schedule(const Algorithm& algorithm, const Shape& shape);
void check_shape(const Shape& shape);

// Chunks have numbers from 0 to this.
int chunk_numbers(const Schedule& schedule);

// The part of the vector that is one chunk. The vector is what one rank gives or gets where it is
// whole: all blocks of scatter, gather, all_gather and reduce_scatter; a rank's input of
// all_to_all.
double chunk_share(const Schedule& schedule);

bool in_input(const Schedule& schedule, int rank, int chunk);
bool in_output(const Schedule& schedule, int rank, int chunk);

// Whether two chunks have the same size whatever the vector is. Chunks and blocks may be unequal
// (7 elements for 4 ranks, v-variants); only reduce_scatter always has equal blocks.
bool same_size(const Schedule& schedule, int a, int b);

// Rounds in which some rank sends.
int communication_rounds(const Schedule& schedule);

}  // namespace lockstep::schedule
