// Two linear layers with an activation between: y = down(f(up(x))).
//
// What is kept of the wide part, by recomputation:
//
//   none, full   f(z) and f'(z), written by the product that makes z
//   selective    z alone, written by that product beside f(z); restore() makes f(z) of it again, in
//                its place, and f'(z)
//
// Operations that differentiate from z (Ops::differentiates_from_input) never store f'(z): its
// place holds z where nothing is recomputed, and f(z) again with selective recomputation.
//
// Layers in 8 bits (linear.h) keep z alone, however much is recomputed: f(z) is made as down() is
// quantized, and f'(z) multiplies as the gradient of z is.
#pragma once

#include <cstddef>

#include "lockstep/nn/parts/linear.h"

namespace lockstep::nn {

struct FeedForwardOptions {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  ops::Activation activation = ops::Activation::kGeluTanh;
  bool biases = true;
  double stddev = 0.02;
  double down_stddev = 0.02;
  TensorGroup tensor = {};  // divides the width
};

class FeedForwardPart : public Part {
 public:
  using Options = FeedForwardOptions;

  FeedForwardPart(Place& next, const std::string& name, const FeedForwardOptions& options);

  // `again`: whether down() is needed when forward is run again.
  void declare(Declaration& declaration, std::int64_t rows, bool again) const;

  // Up to f(up(x)), and from there.
  void forward_up(const Pass& pass, const Tensor& x) const;
  void forward_down(const Pass& pass, const Tensor& y, const Tensor& residual = {}) const;
  void restore(const Pass& pass) const;
  void restore(const Pass& pass, const Tensor& /*x*/) const { restore(pass); }
  // From dy to the gradient of z, which it returns for backward_up(); in 8 bits to that of f(z).
  Tensor backward_down(const Pass& pass, const Tensor& dy) const;
  void backward_up(const Pass& pass, LinearPart::Backward arguments) const;
  // Memory [tokens, spent_width()] that is free after backward_up.
  Tensor spent(const Pass& pass) const;
  std::int64_t spent_width() const { return up_.out(); }

 private:
  // The order of the spec.
  enum Saved : std::size_t { kZ, kActive, kDerivative, kTensors };

  bool keeps_z(const Setup& setup) const;
  bool from_input(const Pass& pass) const;

  FeedForwardOptions options_;
  LinearPart up_;
  LinearPart down_;
};

}  // namespace lockstep::nn
