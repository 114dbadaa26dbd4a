// Recursive exchanges: Rabenseifner's algorithm and the butterfly.
#include <bit>

#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/halving.h"
#include "lockstep/comm/schedule/phases.h"

namespace lockstep::schedule {
namespace {

Range parts_of(Range range, int n, Range parts) {
  const int size = range.count / n;
  return {range.first + parts.first * size, parts.count * size};
}

}  // namespace

int halving_reduce_scatter(Accumulator& vector, int round, const Group& group, Range range) {
  const int n = group.size();
  int at = round;
  for (const Level& level : halving_levels(n, group.index, Pairing::kNear)) {
    vector.send(at, group.at(level.to), parts_of(range, n, level.give));
    for (int from : level.from) vector.reduce(at, group.at(from), parts_of(range, n, level.keep));
    ++at;
  }
  return round + ceil_log2(n);
}

int doubling_all_gather(Accumulator& vector, int round, const Group& group, Range range) {
  const int n = group.size();
  const std::vector<Level> levels = halving_levels(n, group.index, Pairing::kNear);
  const int end = round + ceil_log2(n);
  for (int k = static_cast<int>(levels.size()) - 1; k >= 0; --k) {
    const Level& level = levels[static_cast<std::size_t>(k)];
    const int at = end - 1 - k;
    for (int from : level.from) vector.send(at, group.at(from), parts_of(range, n, level.keep));
    vector.receive(at, group.at(level.to), parts_of(range, n, level.give));
  }
  return end;
}

Program all_reduce_rabenseifner(const Shape& shape, int rank) {
  Accumulator vector(shape.ranks);
  const Group group = all_ranks(shape, rank);
  const Range all{0, shape.ranks};
  int round = halving_reduce_scatter(vector, 0, group, all);
  round = doubling_all_gather(vector, round, group, all);
  return std::move(vector).finish(round);
}

// Exchange with rank xor 2^k. Both add the same two values, so they stay equal to the last bit.
// Beyond the largest power of two p, N-p odd ranks first fold their vector into their left
// neighbour and get the result from it at the end.
//
// Values go back and forth between output and scratch, so that what is being sent is never
// overwritten, and the last one lands in output. Where their number is odd, the first one needs a
// slot of its own: output may be the memory of the input that is being sent.
Program all_reduce_butterfly(const Shape& shape, int rank) {
  const Range all{0, 1};
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(shape.ranks)));
  const int folded = shape.ranks - power;
  const int exchanges = floor_log2(power);
  const int first = folded > 0 ? 1 : 0;
  const int rounds = exchanges + 2 * first;
  const bool has_partner = rank < 2 * folded;
  Writer writer;
  if (has_partner && rank % 2 == 1) {
    writer.send(0, rank - 1, input(all));
    writer.receive(rounds - 1, rank - 1, output(all));
    return std::move(writer).finish(rounds);
  }

  const int additions = exchanges + (has_partner ? 1 : 0);
  if (additions == 0) writer.copy(0, input(all), output(all));
  const bool odd = additions % 2 == 1;
  const Range first_slot = odd ? writer.add_scratch(all) : Range{};
  const Range other_slot = additions > 1 ? writer.add_scratch(all) : Range{};
  const auto value_after = [&](int done) {
    if (done == 0) return input(all);
    if (done == 1 && odd) return scratch(first_slot);
    return (additions - done) % 2 == 0 ? output(all) : scratch(other_slot);
  };
  int done = 0;
  if (has_partner) {
    writer.receive_reduce(0, rank + 1, value_after(0), value_after(1));
    done = 1;
  }
  const int place = has_partner ? rank / 2 : rank - folded;
  for (int k = 0; k < exchanges; ++k, ++done) {
    const int peer_place = place ^ (1 << k);
    const int peer = peer_place < folded ? 2 * peer_place : peer_place + folded;
    writer.send(first + k, peer, value_after(done));
    writer.receive_reduce(first + k, peer, value_after(done), value_after(done + 1));
  }
  if (additions == 1) writer.copy(first + exchanges, scratch(first_slot), output(all));
  if (has_partner) writer.send(rounds - 1, rank + 1, output(all));
  return std::move(writer).finish(rounds);
}

}  // namespace lockstep::schedule
