#include "lockstep/nn/parts/norm.h"

namespace lockstep::nn {

void NormPart::declare(Declaration& declaration, std::int64_t rows) const {
  const bool layer = options_.kind == ops::NormKind::kLayer;
  declaration.gain(named("gain"), options_.width);
  declaration.bias(named("bias"), options_.width, layer && options_.bias);
  declaration.statistic(named("mean"), {layer ? rows : 0}, Life::kKept);
  declaration.statistic(named("rstd"), {rows}, Life::kKept);
  declaration.norm(rows, options_.width);
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
                         .rstd = tensor(pass, kRstd)});
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
                         .rstd = tensor(pass, kRstd)});
}

void NormPart::backward(const Pass& pass, const Backward& arguments) const {
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
                                 .dgain = gradient(pass, kGain),
                                 .dbias = gradient(pass, kBias)});
  finished(pass, kGain);
  finished(pass, kBias);
}

}  // namespace lockstep::nn
