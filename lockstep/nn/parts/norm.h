// Layer norm or RMS norm, with the residual in front of it.
//
// A rank that has some of the tokens (nn/tensor_shard.h) makes the gradients of gain and bias for
// these. The sums over the ranks are what it adds to the gradients: all ranks stay the same.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/parts/declaration.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

struct NormOptions {
  ops::NormKind kind = ops::NormKind::kLayer;
  float epsilon = 1e-5f;
  std::int64_t width = 0;
  bool bias = true;          // of a layer norm
  TensorGroup tensor = {};   // where it divides tokens, gradients are summed over its ranks
  std::string tied_to = {};  // whose gain is that of another block, by its full name
  // The parameter is how far the gain is above 1, and is 0 at first (Gemma). In 16 bits it is finer
  // than the gain.
  bool above_one = false;
};

class NormPart : public Part {
 public:
  NormPart(Place& next, std::string name, const NormOptions& options)
      : Part(next, std::move(name), 2, options.tensor.divides_tokens ? 3 : 2), options_(options) {}

  void declare(Declaration& declaration, std::int64_t rows) const;

  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  // sum = x + dropout(branch) first; `sum` holds the branch before.
  void forward(const Pass& pass, const Tensor& x, const ops::Dropout& dropout, const Tensor& sum,
               const Tensor& y) const;

  struct Backward {
    Tensor dy;
    Tensor sum;        // what was normalised
    Tensor dresidual;  // optional, as in ops::NormBackward; so are the next ones
    Tensor dsum;
    ops::Dropout dropout;
    Tensor dbranch;
  };
  void backward(const Pass& pass, const Backward& arguments) const;

 private:
  // The order of the spec.
  enum Parameter : std::size_t { kGain, kBias };
  enum Saved : std::size_t { kMean, kRstd, kOwnGradients };

  NormOptions options_;
};

}  // namespace lockstep::nn
