// Runs a schedule on symbols instead of numbers: a cell of memory holds a chunk's number and the
// set of ranks whose contributions are in it. An invalid step throws Error(kInvalidArgument) with
// rank, round and step.
//
// What is caught: a region that does not exist, reading what was never written, combining two
// different chunks or one contribution twice, writing to input, a send without its receive or the
// reverse, different sizes on the two sides, two messages from one rank to another in a round.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/schedule/instance.h"
#include "lockstep/comm/schedule/rank_set.h"

namespace lockstep::schedule {

enum class Placement { kOutOfPlace, kInPlace };

struct Cell {
  int chunk = -1;  // -1: never written
  RankSet from;
  bool defined() const { return chunk >= 0; }
};

// A message that arrived.
struct Delivery {
  int from = 0;
  int to = 0;
  bool combined = false;  // with what the receiver had
  std::vector<Cell> cells;
};

class SymbolicRun {
 public:
  SymbolicRun(const Schedule& schedule, Placement placement);

  int rounds() const { return rounds_; }
  // Rounds are run in order, each once.
  void run_round(int round);
  // Throws unless every rank's output is what the collective promises.
  void check_result() const;

  // The messages of the round that was run last, by receiver.
  const std::vector<Delivery>& deliveries() const { return deliveries_; }

  // The cell of `rank` with the most contributions to `chunk`, in any space.
  const Cell& best(int rank, int chunk) const;

 private:
  struct Memory {
    std::vector<Cell> input;
    std::vector<Cell> output;
    std::vector<Cell> scratch;
  };
  struct Place {  // of an error
    int rank;
    int round;
    int step;
  };
  using Message = std::vector<Cell>;

  const Cell* find(int rank, Space space, int index) const;
  Cell* find(int rank, Space space, int index);
  int declared_chunk(int rank, Space space, int index) const;
  std::vector<Cell> read(const Place& place, const Region& region) const;
  void write(const Place& place, const Region& region, const std::vector<Cell>& cells);
  std::vector<Cell> combine(const Place& place, std::vector<Cell> left,
                            const std::vector<Cell>& right) const;
  void collect_sends(int round);
  void apply(const Place& place, const Step& step);
  const Message& take_message(const Place& place, const Step& step);
  [[noreturn]] void fault(const Place& place, const std::string& what) const;

  const Schedule& schedule_;
  bool in_place_;
  int rounds_ = 0;
  std::vector<Memory> memory_;
  std::map<std::pair<int, int>, Message> in_flight_;  // (from, to)
  std::vector<Delivery> deliveries_;
};

std::string describe(const Step& step);  // "reduce from rank 2 into output[3]"

}  // namespace lockstep::schedule
