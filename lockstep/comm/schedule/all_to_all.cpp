// All-to-all: chunk i*N+j goes from rank i to rank j, in one round or with one peer a round.
#include "lockstep/comm/schedule/generators.h"

namespace lockstep::schedule {
namespace {

// What `from` gives to `to`.
Range between(const Shape& shape, int from, int to) { return {from * shape.ranks + to, 1}; }

void exchange(Writer& writer, int round, const Shape& shape, int rank, int to, int from) {
  writer.send(round, to, input(between(shape, rank, to)));
  writer.receive(round, from, output(between(shape, from, rank)));
}

void keep_own(Writer& writer, const Shape& shape, int rank) {
  const Range own = between(shape, rank, rank);
  writer.copy(0, input(own), output(own));
}

}  // namespace

Program all_to_all_direct(const Shape& shape, int rank) {
  Writer writer;
  keep_own(writer, shape, rank);
  for (int distance = 1; distance < shape.ranks; ++distance) {
    exchange(writer, 0, shape, rank, (rank + distance) % shape.ranks,
             (rank - distance + shape.ranks) % shape.ranks);
  }
  return std::move(writer).finish(1);
}

Program all_to_all_pairwise(const Shape& shape, int rank) {
  Writer writer;
  keep_own(writer, shape, rank);
  for (int distance = 1; distance < shape.ranks; ++distance) {
    exchange(writer, distance - 1, shape, rank, (rank + distance) % shape.ranks,
             (rank - distance + shape.ranks) % shape.ranks);
  }
  return std::move(writer).finish(shape.ranks - 1);
}

}  // namespace lockstep::schedule
