// One linear layer: y = x weight^T + bias.
//
// With Setup::fp8 a layer that may be `quantized` trains in 8 bits. Each of its three products then
// takes matrices of bytes whose rows are what is summed over, with f32 sums:
//
//   y       = x8 w8^T             x8 [rows, in], w8 [out, in]               E4M3
//   dx      = dy8 (w8^T)^T        dy8 [rows, out] E5M2, w8^T [in, out]      E4M3
//   dweight = dy8^T (x8^T)^T      dy8^T [out, rows] E5M2, x8^T [in, rows]   E4M3
//
// One Quantize makes both forms of a tensor, from its 16 bits. x8^T and w8^T are kept from forward
// where nothing is recomputed; otherwise backward makes them of x and the weight again, to the same
// bits, because scales change with the update only. Evaluation and generation compute in 16 bits.
//
// The ranks of a tensor group divide the outputs of a layer, or its inputs (nn/tensor_shard.h):
//
//   outputs    each rank makes its columns of y from all of x; dx is summed over the ranks
//   inputs     each rank has its columns of x; y is summed over the ranks. The first rank adds bias
//              and residual, so that they count once; the bias is replicated
//
// With sequence parallelism x of the first and y of the second are a rank's tokens. Such a layer
// gathers its x, or the gradient of its y, in a workspace of all tokens, and scatters the sums.
// Without it a product whose result is summed may be computed in chunks of rows, each of which is
// summed while the next is computed (TensorAxis::chunks()).
#pragma once

#include <cstddef>

#include "lockstep/nn/parts/declaration.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

enum class Divided : std::uint8_t { kNone, kOutputs, kInputs };

struct LinearOptions {
  std::int64_t in = 0;  // of the logical layer
  std::int64_t out = 0;
  bool bias = true;
  double stddev = 0.02;    // of the weight at first
  bool quantized = false;  // where the setup has fp8
  Divided divided = Divided::kNone;
  std::vector<std::int64_t> segments = {};  // of outputs, each divided by itself; empty: one
  TensorGroup tensor = {};
};

class LinearPart : public Part {
 public:
  LinearPart(Place& next, std::string name, const LinearOptions& options)
      : Part(next, std::move(name), 2, tensors_of(options),
             options.quantized ? std::size_t{kScaled} : 0),
        options_(options) {
    if (options_.segments.empty()) options_.segments = {options_.out};
  }

  // Of this rank.
  std::int64_t in() const;
  std::int64_t out() const;
  // Whether it trains in 8 bits: it may, and all extents are multiples of 16, as GPUs need them.
  bool trains_in_fp8(const Setup& setup) const;
  // Whether forward keeps x for backward in 8 bits: nothing in 16 is needed of it then.
  bool keeps_quantized_input(const Setup& setup) const {
    return trains_in_fp8(setup) && keeps_transposed(setup);
  }
  bool is_in_fp8(const Pass& pass) const { return pass.training && trains_in_fp8(pass.setup); }

  // `rows`: of all tokens. A layer that may be quantized, or that gathers tokens, declares tensors
  // too.
  void declare(Declaration& declaration, std::int64_t rows, bool again = true) const;

  void forward(const Pass& pass, const Tensor& x, const Tensor& y,
               const Tensor& residual = {}) const;
  // The outputs from `first` on, as many as y has columns.
  void forward_some(const Pass& pass, const Tensor& x, std::int64_t first, const Tensor& y) const;
  // In 16 bits.
  void forward(const Pass& pass, const Tensor& x, ops::Activation activation, const Tensor& y,
               const Tensor& derivative, const Tensor& z = {}) const;
  // In 8 bits: of x = f(z), which is stored nowhere in 16.
  void forward_of_activated(const Pass& pass, ops::Activation activation, const Tensor& z,
                            const Tensor& y, const Tensor& residual) const;

  struct Backward {
    Tensor dy;
    Tensor x;
    Tensor dx;                // may be x; absent if it is not needed
    Tensor factor = {};       // optional, in 16 bits: dx is multiplied by it
    bool accumulate = false;  // adds to dx
    ops::Activation activation = ops::Activation::kGeluTanh;
    Tensor z = {};  // optional, in 16 bits, instead of factor: dx is multiplied by f'(z)
    // In 8 bits, both optional: x is f(x_of), and absent; dy is yet to be multiplied by f'(dy_at).
    Tensor x_of = {};
    Tensor dy_at = {};
  };
  // Adds to the gradients of weight and bias, and makes dx. Once in a block's backward, which has
  // finished with them then.
  void backward(const Pass& pass, const Backward& arguments) const;

 private:
  // The order of the spec.
  enum Parameter : std::size_t { kWeight, kBias };
  enum Bytes : std::size_t { kX, kXTransposed, kW, kWTransposed, kDY, kDYTransposed, kTensors };
  // After those, where tokens are divided.
  enum AllTokens : std::size_t { kInForward, kInBackward, kWorkspaces };
  enum ScaledTensor : std::size_t { kOfX, kOfWeight, kOfDY, kScaled };

  static std::size_t bytes_of(const LinearOptions& options) {
    return options.quantized ? std::size_t{kTensors} : 0;
  }
  static bool divides_tokens(const LinearOptions& options) {
    return options.tensor.divides_tokens && options.divided != Divided::kNone;
  }
  static std::size_t tensors_of(const LinearOptions& options) {
    return bytes_of(options) + (divides_tokens(options) ? std::size_t{kWorkspaces} : 0);
  }
  const Tensor& all_tokens(const Pass& pass, AllTokens when) const {
    return tensor(pass, bytes_of(options_) + when);
  }
  // What a rank has of rows of all tokens.
  Tensor own_rows(const Tensor& all) const;
  // x of all tokens.
  Tensor gathered(const Pass& pass, const Tensor& x, AllTokens when) const;
  void run_weight_gradient(const Pass& pass, const Tensor& dy, const Tensor& x) const;
  // Products of the rows of y, or dx, which are summed over the ranks.
  void forward_and_sum(const Pass& pass, const ops::Linear& whole) const;
  void backward_and_sum(const Pass& pass, const ops::LinearBackwardInput& whole) const;
  void backward_of_own_tokens(const Pass& pass, const Backward& arguments) const;
  bool divides(Divided what) const { return options_.tensor.size > 1 && options_.divided == what; }
  // Whether this rank adds what counts once in a sum over ranks.
  bool adds_once(Divided what) const { return !divides(what) || options_.tensor.rank == 0; }
  static bool keeps_transposed(const Setup& setup) { return setup.recompute == Recompute::kNone; }
  void declare_bytes(Declaration& declaration, std::int64_t rows) const;
  // Quantizes one of the three; the first time in a micro-batch with its amax.
  void quantize(const Pass& pass, ScaledTensor which, ops::Quantize call, bool first) const;
  void forward_fp8(const Pass& pass, const ops::Quantize& input, const Tensor& y,
                   const Tensor& residual) const;
  void backward_fp8(const Pass& pass, const Backward& arguments) const;

  LinearOptions options_;
};

}  // namespace lockstep::nn
