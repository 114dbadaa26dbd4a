// An algorithm for one shape: the programs of all ranks and their chunks. The verifier, the cost
// model and the drawings use it.
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

// Throws Error(kInvalidArgument) for an invalid shape (no ranks, a root out of range, nodes that do
// not match) and Error(kUnsupported) if the algorithm does not support it.
Schedule make_schedule(const Algorithm& algorithm, const Shape& shape);
void check_shape(const Shape& shape);

// Chunks have numbers from 0 to this.
int chunk_numbers(const Schedule& schedule);

// The fraction of the vector in one chunk. The vector is the whole input or output of one rank: all
// blocks of scatter, gather, all_gather and reduce_scatter; a rank's input of all_to_all.
double chunk_share(const Schedule& schedule);

bool in_input(const Schedule& schedule, int rank, int chunk);
bool in_output(const Schedule& schedule, int rank, int chunk);

// Whether two chunks have the same size whatever the vector is. Chunks and blocks may be unequal
// (7 elements for 4 ranks, v-variants); only reduce_scatter always has equal blocks.
bool same_size(const Schedule& schedule, int a, int b);

// Rounds in which some rank sends.
int communication_rounds(const Schedule& schedule);

}  // namespace lockstep::schedule
