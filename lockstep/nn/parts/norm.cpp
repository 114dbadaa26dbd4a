#include "lockstep/nn/parts/norm.h"

namespace lockstep::nn {

void NormPart::declare(Declaration& declaration, std::int64_t rows) const {
  const bool layer = options_.kind == ops::NormKind::kLayer;
  if (options_.above_one) {
    declaration.bias(named("gain"), options_.width);
  } else {
    declaration.gain(named("gain"), options_.width);
  }
  declaration.tie(options_.tied_to);
  if (!options_.tensor.divides_tokens) declaration.overwrites_gradient();
  declaration.bias(named("bias"), options_.width, layer && options_.bias);
  if (!options_.tensor.divides_tokens) declaration.overwrites_gradient();
  declaration.statistic(named("mean"), {layer ? rows : 0}, Life::kKept);
  declaration.statistic(named("rstd"), {rows}, Life::kKept);
  declaration.norm(rows, options_.width);
  if (!options_.tensor.divides_tokens) return;
  const std::int64_t gradients = layer && options_.bias ? 2 : 1;
  declaration.gradient(named("own_gradients"), {gradients, options_.width});
  declaration.sums(gradients * options_.width, declaration.setup().gradient, options_.tensor);
}

void NormPart::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  pass.ops.run(ops::Norm{.kind = options_.kind,
                         .epsilon = options_.epsilon,
                         .x = x,
                         .branch = {},
                         .dropout = {},
                         .sum = {},
                         .gain = parameter(pass, kGain),
                         .bias = parameter(pass, kBias),
                         .y = y,
                         .mean = tensor(pass, kMean),
                         .rstd = tensor(pass, kRstd),
                         .above_one = options_.above_one});
}

void NormPart::forward(const Pass& pass, const Tensor& x, const ops::Dropout& dropout,
                       const Tensor& sum, const Tensor& y) const {
  pass.ops.run(ops::Norm{.kind = options_.kind,
                         .epsilon = options_.epsilon,
                         .x = x,
                         .branch = sum,
                         .dropout = dropout,
                         .sum = sum,
                         .gain = parameter(pass, kGain),
                         .bias = parameter(pass, kBias),
                         .y = y,
                         .mean = tensor(pass, kMean),
                         .rstd = tensor(pass, kRstd),
                         .above_one = options_.above_one});
}

void NormPart::backward(const Pass& pass, const Backward& arguments) const {
  const Tensor& gain = gradient(pass, kGain);
  const Tensor& bias = gradient(pass, kBias);
  const bool of_own_tokens = options_.tensor.divides_tokens;
  const Tensor own = of_own_tokens ? tensor(pass, kOwnGradients) : Tensor();
  const Tensor own_bias = of_own_tokens && ops::is_given(bias) ? own.row(1) : Tensor();
  if (of_own_tokens) pass.ops.in_order([&] { fill_zero(own); });
  pass.ops.run(ops::NormBackward{.kind = options_.kind,
                                 .dy = arguments.dy,
                                 .sum = arguments.sum,
                                 .gain = parameter(pass, kGain),
                                 .mean = tensor(pass, kMean),
                                 .rstd = tensor(pass, kRstd),
                                 .dresidual = arguments.dresidual,
                                 .dsum = arguments.dsum,
                                 .dropout = arguments.dropout,
                                 .dbranch = arguments.dbranch,
                                 .dgain = of_own_tokens ? own.row(0) : gain,
                                 .dbias = of_own_tokens ? own_bias : bias,
                                 .overwrite = pass.new_gradients && !of_own_tokens,
                                 .above_one = options_.above_one});
  if (of_own_tokens) {
    pass.tensor->sum(pass.ops, own);
    pass.ops.run(ops::Add{.a = gain, .b = own.row(0), .y = gain});
    if (ops::is_given(bias)) pass.ops.run(ops::Add{.a = bias, .b = own_bias, .y = bias});
  }
  finished(pass, kGain);
  finished(pass, kBias);
}

}  // namespace lockstep::nn
