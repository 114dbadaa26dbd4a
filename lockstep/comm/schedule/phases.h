// The phases that all_reduce algorithms are composed of. Each works on a group of ranks and a range
// of chunks, starts at `round` and returns the round after its last, which is the same for all
// ranks of the group. For n ranks the range is cut into n equal parts; part i is for index i.
#pragma once

#include "lockstep/comm/schedule/build.h"

namespace lockstep::schedule {

using Phase = int (*)(Accumulator& vector, int round, const Group& group, Range range);

// A ring: every rank sends only to the next. Afterwards index i has part i combined / all ranks
// have all parts. n-1 rounds each.
int ring_reduce_scatter(Accumulator& vector, int round, const Group& ring, Range range);
int ring_all_gather(Accumulator& vector, int round, const Group& ring, Range range);

// A line: messages only between neighbours; the two ends are not neighbours. n-1 rounds each, in
// both directions at once.
int line_reduce_scatter(Accumulator& vector, int round, const Group& line, Range range);
int line_all_gather(Accumulator& vector, int round, const Group& line, Range range);

// Recursive halving and doubling with neighbours first: index i ends with the part that is its
// place after sorting even before odd indices, again and again. ceil(log2 n) rounds each.
int halving_reduce_scatter(Accumulator& vector, int round, const Group& group, Range range);
int doubling_all_gather(Accumulator& vector, int round, const Group& group, Range range);

// A tree with index 0 at its root, the whole range in every message. ceil(log2 n) rounds each.
int tree_reduce(Accumulator& vector, int round, const Group& group, Range range);
int tree_broadcast(Accumulator& vector, int round, const Group& group, Range range);

}  // namespace lockstep::schedule
