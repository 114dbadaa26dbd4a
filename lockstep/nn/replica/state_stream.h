// A pass over a replica's master copy, optimizer states and parameters, in any tier.
//
//   StateStream stream(replica, StateAccess::kUpdate);
//   while (stream.next()) work_with(stream.block(), stream.range(), stream.states());
//
// States in memory are visited block by block, states in a file chunk by chunk
// (nn/parameters/flat_file.h). Work on a chunk must be complete before next(): a caller that
// computes on a Stream must synchronize.
#pragma once

#include <functional>
#include <optional>

#include "lockstep/nn/parameters/flat_file.h"
#include "lockstep/nn/replica/replica.h"

namespace lockstep::nn {

enum class StateAccess : std::uint8_t {
  kRead,
  kWrite,   // writes everything; old values are not read
  kUpdate,  // both
  kRound,   // reads the master copy, and writes parameters of 16 bits
};

class StateStream {
 public:
  // Over all blocks, from 0 on, or one. Throws what FlatFileStream throws, and so does next(). With
  // `only`, only that flat buffer is read from a file.
  StateStream(Replica& replica, StateAccess access, Tensor States::*only = nullptr);
  StateStream(Replica& replica, StateAccess access, std::size_t block);

  // False after the last, when all changes are stored.
  bool next();
  std::size_t block() const { return block_; }
  FlatRange range() const { return range_; }  // in the whole flat buffer
  // All flat buffers of that range, as in Replica::mine().
  States states() const;

 private:
  Replica& replica_;
  std::optional<FlatFileStream> filed_;
  std::size_t block_ = 0;
  FlatRange range_;
  std::size_t next_block_ = 0;  // if nothing is in a file
  std::size_t end_block_ = 0;
};

// Calls f for every parameter of a block with elements in a range of the flat buffer: with the
// first of these elements in the parameter, and their position in the range.
void for_parameters_in(const FlatParameters& flat, std::size_t block, FlatRange range,
                       const std::function<void(const FlatParameter& parameter, std::size_t first,
                                                FlatRange within)>& f);

}  // namespace lockstep::nn
