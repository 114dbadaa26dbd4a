// One linear layer: y = x weight^T + bias.
#pragma once

#include <cstddef>

#include "lockstep/nn/parts/declaration.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

struct LinearOptions {
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;
  double stddev = 0.02;  // of the weight at first
};

class LinearPart : public Part {
 public:
  LinearPart(Place& next, std::string name, const LinearOptions& options)
      : Part(next, std::move(name), 2, 0), options_(options) {}

  std::int64_t in() const { return options_.in; }
  std::int64_t out() const { return options_.out; }

  void declare(Declaration& declaration, std::int64_t rows, bool again = true) const;

  void forward(const Pass& pass, const Tensor& x, const Tensor& y,
               const Tensor& residual = {}) const;
  // The outputs from `first` on, as many as y has columns.
  void forward_some(const Pass& pass, const Tensor& x, std::int64_t first, const Tensor& y) const;
  void forward(const Pass& pass, const Tensor& x, ops::Activation activation, const Tensor& y,
               const Tensor& derivative, const Tensor& z = {}) const;

  struct Backward {
    Tensor dy;
    Tensor x;
    Tensor dx;                // may be x; absent if it is not needed
    Tensor factor = {};       // optional: dx is multiplied by it
    bool accumulate = false;  // adds to dx
    ops::Activation activation = ops::Activation::kGeluTanh;
    Tensor z = {};  // optional, instead of factor: dx is multiplied by f'(z)
  };
  // Adds to the gradients of weight and bias, and makes dx. Once in a block's backward, which has
  // finished with them then.
  void backward(const Pass& pass, const Backward& arguments) const;

 private:
  // The order of the spec.
  enum Parameter : std::size_t { kWeight, kBias };

  LinearOptions options_;
};

}  // namespace lockstep::nn
