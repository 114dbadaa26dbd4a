// Collective algorithms as data: schedules.
//
// Words. The *vector* is what a collective works on. It is cut into *chunks*, numbered from 0; a
// chunk is the unit that algorithms move. A *block* is what belongs to one rank; where a
// collective has blocks, each block is cut into the same number of chunks.
//
// Every rank has three *spaces* of memory, addressed by chunk number:
//   input    what the rank gives; read-only for schedules, and possibly the same memory as output
//   output   what the rank gets, and the place where partial results grow
//   scratch  slots of its own; Program::scratch says for each slot which chunk's size it has
//
// Which chunks exist in input and output (C chunks a block or a vector, N ranks, rank r):
//   broadcast       input (root): 0..C-1            output: 0..C-1
//   reduce          input: 0..C-1                   output (root): 0..C-1
//   all_reduce      input: 0..C-1                   output: 0..C-1
//   scatter         input (root): 0..N*C-1          output: r*C..r*C+C-1
//   gather          input: r*C..r*C+C-1             output (root): 0..N*C-1
//   all_gather      input: r*C..r*C+C-1             output: 0..N*C-1
//   reduce_scatter  input: 0..N*C-1                 output: r*C..r*C+C-1
//   all_to_all      input: r*N+j for every rank j   output: j*N+r for every rank j (C is 1)
// In all_to_all, chunk i*N+j is what rank i gives to rank j.
// A non-root that reduces, gathers or scatters on behalf of others does so in scratch.
//
// A schedule is a Program for every rank. A program is a list of *rounds*; the rounds of all ranks
// line up, and a rank without work in a round has an empty one. A round of one rank means:
//   1. its sends read memory as it was when the round began;
//   2. its receives and local steps then take effect, in the order listed.
// A send of round k is matched by a receive of round k at the peer, with chunks of the same sizes;
// two ranks exchange at most one message each way in a round. A round in which no rank sends is
// local and does not count as a round of communication.
//
//     struct Step         rank 1 of a ring of 4, round 0 of reduce-scatter:
//     send   peer 2, from input[0]
//     reduce peer 0, operand input[3] + what comes -> output[3]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/call.h"

namespace lockstep::schedule {

enum class Space : std::uint8_t { kInput, kOutput, kScratch };

// `count` consecutive chunks (or scratch slots) of a space, starting at `first`.
struct Region {
  Space space = Space::kOutput;
  int first = 0;
  int count = 1;
  friend bool operator==(const Region&, const Region&) = default;
};

enum class StepKind : std::uint8_t {
  kSend,           // source -> peer
  kReceive,        // peer -> target
  kReceiveReduce,  // target = source op what comes from peer
  kCopy,           // target = source
  kReduce,         // target = target op source
};

struct Step {
  StepKind kind;
  int peer = -1;
  Region source;
  Region target;
  friend bool operator==(const Step&, const Step&) = default;
};

using Round = std::vector<Step>;

// One rank's part of a schedule.
struct Program {
  std::vector<Round> rounds;
  std::vector<int> scratch;  // slot -> the chunk whose size it has
};

// The input of a generator. `machines[r]` is the node of rank r (empty: one node); `grid` the
// extents of a mesh or torus, slowest first (empty: the one that sends least between nodes, then
// the most even one: grid.cpp); `segments` the number of pipeline segments (0: the generator's
// default).
struct Shape {
  int ranks = 1;
  int root = 0;
  int segments = 0;
  std::vector<int> machines;
  std::vector<int> grid;
};

// A named algorithm of a collective.
struct Algorithm {
  Collective collective;
  std::string_view name;     // "ring", "rabenseifner", ...
  std::string_view summary;  // one sentence
  // Chunks of the vector, or of each block (C above).
  int (*chunks)(const Shape& shape);
  // A pure function; called only for shapes that are not refused.
  Program (*program)(const Shape& shape, int rank);
  // Why the algorithm does not support this shape, and what would work; nothing if it does.
  std::optional<std::string> (*refuses)(const Shape& shape);
};

// All algorithms of a collective, the simplest first. (A barrier is an all_reduce of nothing.)
std::span<const Algorithm> algorithms(Collective collective);

// The algorithm of that name; Throws Error(kInvalidArgument) with all names and the nearest.
const Algorithm& find_algorithm(Collective collective, std::string_view name);

}  // namespace lockstep::schedule
