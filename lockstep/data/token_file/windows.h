// The order in which a run reads a stream of tokens.
//
// *Positions* are the places of the stream that are learned from, 0 to positions - 1. They are
// thought of as a circle. A *window* is `length` positions in a row; an *epoch* is as many windows
// as fit, one behind the other, from the epoch's start on:
//
//      start
//        |---- 0 ----|---- 1 ----|---- 2 ----|-- left out --|   once around the circle
//
// Every epoch starts somewhere else, so that the stream is cut differently each time, and in such a
// way that what one epoch leaves out the next one has: any two epochs that follow each other cover
// all positions. The windows of an epoch come in an order of its own, each exactly once.
//
// There is no state: the position of a sequence is a function of seed and number, which any worker
// can compute.
#pragma once

#include <cstdint>

namespace lockstep::data {

// Where `index` (below `count`) goes in a random order of 0 to count - 1: for each key and round a
// bijection of its own. A Feistel network over the next even number of bits, walked until it comes
// out below `count`: less than four times on average.
std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, std::uint64_t key,
                       std::uint64_t round);

class WindowOrder {
 public:
  // Throws Error(kInvalidArgument) where not even one window fits, or `length` is 0.
  WindowOrder(std::uint64_t positions, std::uint64_t length, std::uint64_t seed);

  std::uint64_t positions() const { return positions_; }
  std::uint64_t windows() const { return windows_; }  // of an epoch

  // The first position of the run's sequence of that number; the others follow around the circle.
  std::uint64_t first_position(std::uint64_t sequence) const;

 private:
  std::uint64_t start_of(std::uint64_t epoch) const;

  std::uint64_t positions_;
  std::uint64_t length_;
  std::uint64_t windows_;
  std::uint64_t seed_;
  std::uint64_t start_;   // of epoch 0
  std::uint64_t stride_;  // from the start of an epoch to the next one's
};

}  // namespace lockstep::data
