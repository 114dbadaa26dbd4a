#include "lockstep/nn/parts/linear.h"

namespace lockstep::nn {

void LinearPart::declare(Declaration& declaration, std::int64_t rows, bool again) const {
  declaration.weight(named("weight"), options_.out, options_.in, options_.stddev);
  declaration.bias(named("bias"), options_.out, options_.bias);
  declaration.linear(rows, options_.in, options_.out, again);
}

void LinearPart::forward(const Pass& pass, const Tensor& x, const Tensor& y,
                         const Tensor& residual) const {
  pass.ops.run(ops::Linear{.x = x,
                           .weight = parameter(pass, kWeight),
                           .bias = parameter(pass, kBias),
                           .residual = residual,
                           .y = y});
}

void LinearPart::forward_some(const Pass& pass, const Tensor& x, std::int64_t first,
                              const Tensor& y) const {
  const std::int64_t count = y.shape()[1];
  const Tensor& bias = parameter(pass, kBias);
  pass.ops.run(ops::Linear{.x = x,
                           .weight = parameter(pass, kWeight).slice(first, count),
                           .bias = ops::is_given(bias) ? bias.slice(first, count) : Tensor(),
                           .residual = {},
                           .y = y});
}

void LinearPart::forward(const Pass& pass, const Tensor& x, ops::Activation activation,
                         const Tensor& y, const Tensor& derivative, const Tensor& z) const {
  pass.ops.run(ops::LinearActivation{.x = x,
                                     .weight = parameter(pass, kWeight),
                                     .bias = parameter(pass, kBias),
                                     .activation = activation,
                                     .y = y,
                                     .derivative = derivative,
                                     .z = z});
}

void LinearPart::backward(const Pass& pass, const Backward& arguments) const {
  pass.ops.run(ops::LinearBackwardWeight{.dy = arguments.dy,
                                         .x = arguments.x,
                                         .dweight = gradient(pass, kWeight),
                                         .dbias = gradient(pass, kBias)});
  if (ops::is_given(arguments.dx)) {
    pass.ops.run(ops::LinearBackwardInput{.dy = arguments.dy,
                                          .weight = parameter(pass, kWeight),
                                          .factor = arguments.factor,
                                          .dx = arguments.dx,
                                          .accumulate = arguments.accumulate,
                                          .activation = arguments.activation,
                                          .z = arguments.z});
  }
  finished(pass, kWeight);
  finished(pass, kBias);
}

}  // namespace lockstep::nn
