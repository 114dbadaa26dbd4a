// Linear layers on a GPU, over cuBLASLt (matmuls.h); forward of up to 8 rows over few_rows.h.
//
// Bias and residual ride along with the product. An activation, and the factor of a gradient, are a
// pass of their own over what the product stored: so LinearActivation has the bits of Linear
// followed by Activate, and a gradient with a factor is rounded twice. The gradient of a bias is a
// pass over dy (column_sums.h) that runs beside the product of the weight's gradient.
//
// The slopes of a GELU of the tanh kind ride along with the product of the backward, from the z
// that was kept, where that is faster than a pass of their own. (GELU itself does not: cuBLASLt
// would compute it from z before z is rounded, and what recomputation makes again would have other
// bits.)
//
// Products of 8 bits are cuBLASLt's where the GPU has them, 16 divides the inner extent, and both
// matrices and their scales begin on 16 bytes; else they take plain loops.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/cuda/device/side_stream.h"
#include "lockstep/ops/cuda/linear/product.h"
#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

class Matmuls;

// Belongs to one thread at a time. The first run of a shape may wait for the stream and allocate,
// unless the stream is being captured; all others only queue.
class LinearLayers {
 public:
  explicit LinearLayers(const Context& context);
  ~LinearLayers();

  void run(const Context& context, const ops::Linear& call);
  void run(const Context& context, const ops::LinearActivation& call);
  void run(const Context& context, const ops::LinearBackwardInput& call);
  void run(const Context& context, const ops::LinearBackwardWeight& call);
  void run(const Context& context, const ops::ScaledMatmul& call);

  // Bytes of workspace, enough for all passes of such a layer.
  std::size_t scratch(const LinearShape& shape) const;
  // "cublaslt algo 66 tile 23 stages 35 (timed, 463.1 us)"
  std::string implementation(const LinearShape& shape, LinearPass pass) const;
  // What multiplies which matrices, a line each.
  std::string chosen_algorithms() const;

 private:
  // With call.z, of the tanh kind.
  void backward_input_of_gelu(const Context& context, const ops::LinearBackwardInput& call);
  bool slopes_ride_along(const Context& context, const Product& product, const Operands& operands);
  // Bytes for a product and for the column sums beside it.
  std::size_t scratch_with_sums(std::int64_t rows, std::size_t columns) const;

  std::string float8_implementation(const LinearShape& shape, LinearPass pass) const;

  int multiprocessors_;
  double bytes_per_microsecond_;
  bool has_float8_;
  std::unique_ptr<Matmuls> matmuls_;
  SideStream side_;
};

}  // namespace lockstep::cuda
