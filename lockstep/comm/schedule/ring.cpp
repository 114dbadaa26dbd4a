// Rings. Every rank sends to the next rank and receives from the previous one, one part per round.
//
//   0 -> 1 -> 2 -> 3        reduce-scatter, part 3:  0 sends x0, 1 adds x1, 2 adds x2, 3 adds x3
//   ^______________|        all-gather, part 3:      3 sends it on, 0 and 1 pass it, 2 keeps it
#include <algorithm>

#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/phases.h"

namespace lockstep::schedule {

int ring_reduce_scatter(Accumulator& vector, int round, const Group& ring, Range range) {
  const int n = ring.size();
  for (int k = 0; k < n - 1; ++k, ++round) {
    vector.send(round, ring.next(), part(range, n, ring.index - 1 - k));
    vector.reduce(round, ring.previous(), part(range, n, ring.index - 2 - k));
  }
  return round;
}

int ring_all_gather(Accumulator& vector, int round, const Group& ring, Range range) {
  const int n = ring.size();
  for (int k = 0; k < n - 1; ++k, ++round) {
    vector.send(round, ring.next(), part(range, n, ring.index - k));
    vector.receive(round, ring.previous(), part(range, n, ring.index - 1 - k));
  }
  return round;
}

Program all_reduce_ring(const Shape& shape, int rank) {
  Accumulator vector(shape.ranks);
  const Group ring = all_ranks(shape, rank);
  const Range all{0, shape.ranks};
  int round = ring_reduce_scatter(vector, 0, ring, all);
  round = ring_all_gather(vector, round, ring, all);
  return std::move(vector).finish(round);
}

int bidirectional_ring_chunks(const Shape& shape) {
  return shape.ranks > 2 ? 2 * shape.ranks : shape.ranks;
}

Program all_reduce_bidirectional_ring(const Shape& shape, int rank) {
  // Two ranks have one link, which an ordinary ring already uses both ways.
  if (shape.ranks <= 2) return all_reduce_ring(shape, rank);
  Accumulator vector(2 * shape.ranks);
  const Group forward = all_ranks(shape, rank);
  Group backward = forward;
  std::reverse(backward.ranks.begin(), backward.ranks.end());
  backward.index = shape.ranks - 1 - rank;
  const Range halves[] = {{0, shape.ranks}, {shape.ranks, shape.ranks}};
  int round = ring_reduce_scatter(vector, 0, forward, halves[0]);
  ring_reduce_scatter(vector, 0, backward, halves[1]);
  const int gather = round;
  round = ring_all_gather(vector, gather, forward, halves[0]);
  ring_all_gather(vector, gather, backward, halves[1]);
  return std::move(vector).finish(round);
}

}  // namespace lockstep::schedule
