// Linear layers on a GPU, over cuBLASLt (matmuls.h); forward of up to 8 rows over few_rows.h.
//
// Bias and residual are fused into the product. An activation, and the factor of a gradient, are
// separate passes over the stored result. So LinearActivation has the bits of Linear followed by
// Activate, and a gradient with a factor is rounded twice. The gradient of a bias is a pass over dy
// (column_sums.h) that runs beside the product of the weight's gradient.
//
// The derivative of GELU's tanh form, computed from the kept z, is fused into the product of
// backward where that is faster than a separate pass. GELU itself is not fused into forward:
// cuBLASLt would compute it from z before z is rounded, and recomputation would give other bits.
//
// cuBLASLt runs 8-bit products if the GPU supports them, the inner extent is a multiple of 16, and
// both matrices and their scales are aligned to 16 bytes. Otherwise plain loops run them.
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

// One thread at a time may use it. The first run of a shape may wait for the stream and allocate,
// unless the stream is being captured. All later runs only queue.
class LinearLayers {
 public:
  explicit LinearLayers(const Context& context);
  ~LinearLayers();

  void run(const Context& context, const ops::Linear& call);
  void run(const Context& context, const ops::LinearActivation& call);
  void run(const Context& context, const ops::LinearBackwardInput& call);
  void run(const Context& context, const ops::LinearBackwardWeight& call);
  void run(const Context& context, const ops::ScaledMatmul& call);

  // Bytes of workspace that are enough for forward and backward of such a layer.
  std::size_t scratch(const LinearShape& shape) const;
  // "cublaslt algo 66 tile 23 stages 35 (timed, 463.1 us)"
  std::string implementation(const LinearShape& shape, LinearPass pass) const;
  // One line per product: its matrices and its algorithm.
  std::string chosen_algorithms() const;

 private:
  // With call.z: the activation is the tanh form of GELU.
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
