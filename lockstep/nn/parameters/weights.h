// The parameters of a model alone, in the compute type: all that generating text needs. Training
// has them in a Replica (nn/replica/replica.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::nn {

class Weights {
 public:
  // Takes the memory; its content is undefined. `ops` says on which device.
  Weights(const Model& model, DType dtype, const Ops& ops);

  // As Replica::initialise.
  void initialise(std::uint64_t seed, int threads = 1);

  const FlatParameters& flat() const { return flat_; }
  Tensor buffer() const { return view_; }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  FlatParameters flat_;
  Buffer buffer_;
  Tensor view_;
};

}  // namespace lockstep::nn
