#include "lockstep/comm/schedule/build.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::schedule {

int ceil_log2(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }
int floor_log2(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }

Range part(Range whole, int n, int i) {
  const int size = whole.count / n;
  const int index = ((i % n) + n) % n;
  return {whole.first + index * size, size};
}

Region input(Range chunks) { return {Space::kInput, chunks.first, chunks.count}; }
Region output(Range chunks) { return {Space::kOutput, chunks.first, chunks.count}; }
Region scratch(Range slots) { return {Space::kScratch, slots.first, slots.count}; }

Group all_ranks(const Shape& shape, int rank) {
  Group group;
  group.ranks.resize(static_cast<std::size_t>(shape.ranks));
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  group.index = rank;
  return group;
}

void Writer::add(int round, Step step) {
  const auto index = static_cast<std::size_t>(round);
  if (program_.rounds.size() <= index) program_.rounds.resize(index + 1);
  program_.rounds[index].push_back(step);
}

void Writer::send(int round, int peer, Region source) {
  add(round, {StepKind::kSend, peer, source, {}});
}
void Writer::receive(int round, int peer, Region target) {
  add(round, {StepKind::kReceive, peer, {}, target});
}
void Writer::receive_reduce(int round, int peer, Region source, Region target) {
  add(round, {StepKind::kReceiveReduce, peer, source, target});
}
void Writer::copy(int round, Region source, Region target) {
  add(round, {StepKind::kCopy, -1, source, target});
}
void Writer::reduce(int round, Region source, Region target) {
  add(round, {StepKind::kReduce, -1, source, target});
}

Range Writer::add_scratch(Range chunks) {
  const int first = static_cast<int>(program_.scratch.size());
  for (int c = chunks.first; c < chunks.end(); ++c) program_.scratch.push_back(c);
  return {first, chunks.count};
}

Program Writer::finish(int rounds) && {
  if (program_.rounds.size() < static_cast<std::size_t>(rounds)) {
    program_.rounds.resize(static_cast<std::size_t>(rounds));
  }
  for (Round& round : program_.rounds) {
    std::stable_partition(round.begin(), round.end(),
                          [](const Step& step) { return step.kind == StepKind::kSend; });
  }
  return std::move(program_);
}

Region Accumulator::current(Range chunks) const {
  const unsigned char* const first = in_output_.data() + chunks.first;
  const bool written = *first != 0;
  if (std::memchr(first, written ? 0 : 1, static_cast<std::size_t>(chunks.count)) != nullptr) {
    fail(ErrorCode::kInvalidArgument,
         "chunks {} to {} lie partly in input and partly in output; a generator must move them "
         "apart",
         chunks.first, chunks.end() - 1);
  }
  return written ? output(chunks) : input(chunks);
}

void Accumulator::mark(Range chunks) {
  std::fill_n(in_output_.begin() + chunks.first, chunks.count, 1);
}

void Accumulator::send(int round, int peer, Range chunks) {
  writer_.send(round, peer, current(chunks));
}

void Accumulator::receive(int round, int peer, Range chunks) {
  writer_.receive(round, peer, output(chunks));
  mark(chunks);
}

void Accumulator::reduce(int round, int peer, Range chunks) {
  writer_.receive_reduce(round, peer, current(chunks), output(chunks));
  mark(chunks);
}

Program Accumulator::finish(int rounds) && {
  const int chunks = static_cast<int>(in_output_.size());
  // The next chunk from `c` on that has been written, or has not.
  const auto next = [&](int c, int written) {
    const auto left = static_cast<std::size_t>(chunks - c);
    const void* const found = std::memchr(in_output_.data() + c, written, left);
    return found == nullptr
               ? chunks
               : static_cast<int>(static_cast<const unsigned char*>(found) - in_output_.data());
  };
  for (int c = next(0, 0); c < chunks;) {
    const int end = next(c, 1);
    writer_.copy(0, input({c, end - c}), output({c, end - c}));
    c = end < chunks ? next(end, 0) : chunks;
  }
  return std::move(writer_).finish(rounds);
}

void fold_in_rank_order(Writer& writer, int round, const Shape& shape, int rank, Region own,
                        Region sum) {
  int next = 0;  // the first rank whose contribution is not in `sum` yet
  if (rank >= 2) {
    writer.receive(round, 0, sum);
    for (next = 1; next < rank; ++next) writer.receive_reduce(round, next, sum, sum);
    writer.reduce(round, own, sum);
    next = rank + 1;
  } else if (shape.ranks >= 2) {
    writer.receive_reduce(round, 1 - rank, own, sum);
    next = 2;
  } else {
    writer.copy(round, own, sum);
    next = 1;
  }
  for (; next < shape.ranks; ++next) writer.receive_reduce(round, next, sum, sum);
}

void fold_into_output(Writer& writer, int round, const Shape& shape, int rank, Range chunks) {
  if (rank < 2) {
    fold_in_rank_order(writer, round, shape, rank, input(chunks), output(chunks));
    return;
  }
  const Region sum = scratch(writer.add_scratch(chunks));
  fold_in_rank_order(writer, round, shape, rank, input(chunks), sum);
  writer.copy(round, sum, output(chunks));
}

}  // namespace lockstep::schedule
