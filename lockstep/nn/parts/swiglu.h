// The feed-forward of Llama: y = down(silu(gate(x)) up(x)), gate and up in one packed linear layer.
// Gemma's has GELU for silu.
#pragma once

#include <cstddef>

#include "lockstep/nn/parts/linear.h"

namespace lockstep::nn {

struct SwiGluOptions {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  bool biases = false;
  double stddev = 0.02;
  double down_stddev = 0.02;
  TensorGroup tensor = {};  // divides the width
  ops::Gate gate = ops::Gate::kSilu;
};

class SwiGluPart : public Part {
 public:
  using Options = SwiGluOptions;

  SwiGluPart(Place& next, const std::string& name, const SwiGluOptions& options);

  void declare(Declaration& declaration, std::int64_t rows, bool again) const;

  // As FeedForwardPart.
  void forward_up(const Pass& pass, const Tensor& x) const;
  void forward_down(const Pass& pass, const Tensor& y, const Tensor& residual = {}) const;
  void restore(const Pass& pass) const;
  void restore(const Pass& pass, const Tensor& /*x*/) const { restore(pass); }
  // From dy to the gradient of the packed gates and ups, which it returns for backward_up().
  Tensor backward_down(const Pass& pass, const Tensor& dy) const;
  void backward_up(const Pass& pass, const LinearPart::Backward& arguments) const {
    gate_up_.backward(pass, arguments);
  }
  // Memory [tokens, spent_width()] that is free when the gradient of gates and ups is no longer
  // needed.
  Tensor spent(const Pass& pass) const;
  std::int64_t spent_width() const { return gate_up_.out(); }

 private:
  // The order of the spec.
  enum Saved : std::size_t { kGateUp, kActive, kTensors };

  SwiGluOptions options_;
  LinearPart gate_up_;
  LinearPart down_;
};

}  // namespace lockstep::nn
