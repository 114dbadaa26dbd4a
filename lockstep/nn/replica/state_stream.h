// A pass over what a replica's optimizer updates, wherever it lies: the master copy, what the
// optimizer keeps, and the parameters.
//
//   StateStream stream(replica, StateAccess::kUpdate);
//   while (stream.next()) work_with(stream.block(), stream.range(), stream.states());
//
// What lies in memory is given block by block. What lies in a file comes chunk by chunk
// (nn/parameters/flat_file.h), and what was done to a chunk is done with before the next is asked
// for: whoever computes on a Stream synchronises.
#pragma once

#include <functional>
#include <optional>

#include "lockstep/nn/parameters/flat_file.h"
#include "lockstep/nn/replica/replica.h"

namespace lockstep::nn {

enum class StateAccess : std::uint8_t {
  kRead,
  kWrite,   // all of it; what was there is not brought
  kUpdate,  // both
  kRound,   // reads the master copy, and writes parameters of 16 bits
};

class StateStream {
 public:
  // Over all blocks, from 0 on, or one. Throws what FlatFileStream throws, and so does next(). With
  // `only` that flat buffer alone is given of those that lie in a file.
  StateStream(Replica& replica, StateAccess access, Tensor States::*only = nullptr);
  StateStream(Replica& replica, StateAccess access, std::size_t block);

  // False: that was the last, and what was changed is where it lies.
  bool next();
  std::size_t block() const { return block_; }
  FlatRange range() const { return range_; }  // in the whole flat buffer
  // Of that range: all flat buffers, as Replica::mine() has them.
  States states() const;

 private:
  Replica& replica_;
  std::optional<FlatFileStream> filed_;
  std::size_t block_ = 0;
  FlatRange range_;
  std::size_t next_block_ = 0;  // where nothing lies in a file
  std::size_t end_block_ = 0;
};

// Calls f for every parameter of a block of which elements lie in a range of the flat buffer: with
// the first of these, counted in the parameter, and where they lie in the range.
void for_parameters_in(const FlatParameters& flat, std::size_t block, FlatRange range,
                       const std::function<void(const FlatParameter& parameter, std::size_t first,
                                                FlatRange within)>& f);

}  // namespace lockstep::nn
