// The simplest algorithms: every rank sends to every other, or all send to one server.
#include "lockstep/comm/schedule/generators.h"

namespace lockstep::schedule {

Program all_reduce_naive(const Shape& shape, int rank) {
  const Range all{0, 1};
  Writer writer;
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer != rank) writer.send(0, peer, input(all));
  }
  const Region sum = scratch(writer.add_scratch(all));
  fold_in_rank_order(writer, 0, shape, rank, input(all), sum);
  writer.copy(1, sum, output(all));  // not before the input, which may lie there, has been sent
  return std::move(writer).finish(2);
}

Program all_reduce_server(const Shape& shape, int rank) {
  const Range all{0, 1};
  const int server = shape.root;
  Writer writer;
  if (rank == server) {
    fold_into_output(writer, 0, shape, rank, all);
    for (int peer = 0; peer < shape.ranks; ++peer) {
      if (peer != rank) writer.send(1, peer, output(all));
    }
  } else {
    writer.send(0, server, input(all));
    writer.receive(1, server, output(all));
  }
  return std::move(writer).finish(shape.ranks > 1 ? 2 : 1);
}

}  // namespace lockstep::schedule
