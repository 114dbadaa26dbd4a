// Helpers of generators.
#pragma once

#include <vector>

#include "lockstep/comm/schedule/schedule.h"

namespace lockstep::schedule {

int ceil_log2(int n);   // of n >= 1
int floor_log2(int n);  // of n >= 1

// Consecutive chunks (or ranks, or slots).
struct Range {
  int first = 0;
  int count = 0;
  int end() const { return first + count; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Part i, counted around, of a range cut into n equal parts.
Range part(Range whole, int n, int i);

Region input(Range chunks);
Region output(Range chunks);
Region scratch(Range slots);

// The ranks of a phase, and the index of the rank whose program is written.
struct Group {
  std::vector<int> ranks;
  int index = 0;

  int size() const { return static_cast<int>(ranks.size()); }
  int at(int i) const { return ranks[static_cast<std::size_t>(i)]; }
  int next() const { return at((index + 1) % size()); }
  int previous() const { return at((index + size() - 1) % size()); }
};

Group all_ranks(const Shape& shape, int rank);

// Writes the steps of one rank's program into numbered rounds.
class Writer {
 public:
  void send(int round, int peer, Region source);
  void receive(int round, int peer, Region target);
  void receive_reduce(int round, int peer, Region source, Region target);
  void copy(int round, Region source, Region target);
  void reduce(int round, Region source, Region target);

  // New slots, with the sizes of the given chunks.
  Range add_scratch(Range chunks);

  // The program, padded with empty rounds to `rounds`; in each round the sends come first, the
  // other steps stay in the order written.
  Program finish(int rounds) &&;

 private:
  void add(int round, Step step);

  Program program_;
};

// A Writer for all_reduce that tracks for every chunk whether this rank's value is still its input
// or was written to output. So nothing is copied before it is combined.
//
// In each round, write the sends before the receives.
class Accumulator {
 public:
  explicit Accumulator(int chunks) : in_output_(static_cast<std::size_t>(chunks)) {}

  void send(int round, int peer, Range chunks);
  void receive(int round, int peer, Range chunks);  // replaces this rank's value
  void reduce(int round, int peer, Range chunks);   // combines it with what comes

  // Copies what no message has touched, then like Writer::finish.
  Program finish(int rounds) &&;

 private:
  Region current(Range chunks) const;
  void mark(Range chunks);

  Writer writer_;
  std::vector<unsigned char> in_output_;  // by chunk, 0 or 1: looked through by the block
};

// sum = x0 op x1 op ... op x(N-1), folded in the order of ranks, so that every rank that does it
// gets the same bits. xr of this rank is `own`; the others' come as messages of `round`. From rank
// 2 on, `sum` must not be the memory of `own`.
void fold_in_rank_order(Writer& writer, int round, const Shape& shape, int rank, Region own,
                        Region sum);

// The same from input to output, for a rank that does not send these chunks in `round`.
void fold_into_output(Writer& writer, int round, const Shape& shape, int rank, Range chunks);

}  // namespace lockstep::schedule
