#include "lockstep/nn/parts/linear.h"

#include <algorithm>

#include "lockstep/nn/tensor_axis.h"

namespace lockstep::nn {
namespace {

constexpr Float8 kForwardFormat = Float8::kE4M3;
constexpr Float8 kGradientFormat = Float8::kE5M2;  // has the range that gradients need

bool is_multiple(std::int64_t extent) { return extent % 16 == 0; }

// Of a tensor that may be absent.
Tensor rows_of(const Tensor& all, const Extent& rows) {
  return ops::is_given(all) ? all.slice(rows.first, rows.count) : Tensor();
}

// Calls `compute` for rows of `result`, all in the end, and sums these over the tensor group: those
// of one chunk while the next is computed.
template <class Compute>
void in_summed_chunks(const Pass& pass, const Tensor& result, Compute&& compute) {
  const std::int64_t rows = result.shape()[0];
  const auto chunks = static_cast<int>(std::min<std::int64_t>(pass.tensor->chunks(), rows));
  if (chunks <= 1) {
    compute(Extent{.first = 0, .count = rows});
    return pass.tensor->sum(pass.ops, result);
  }
  TensorAxis::Sums sums(*pass.tensor);
  for (int i = 0; i < chunks; ++i) {
    const Extent chunk = share_of(rows, {.size = chunks, .rank = i});
    compute(chunk);
    sums.start(pass.ops, result.slice(chunk.first, chunk.count));
  }
  sums.wait();
}

}  // namespace

std::int64_t LinearPart::in() const {
  return divides(Divided::kInputs) ? share_of(options_.in, options_.tensor).count : options_.in;
}

std::int64_t LinearPart::out() const {
  if (!divides(Divided::kOutputs)) return options_.out;
  std::int64_t mine = 0;
  for (const std::int64_t segment : options_.segments) {
    mine += share_of(segment, options_.tensor).count;
  }
  return mine;
}

bool LinearPart::trains_in_fp8(const Setup& setup) const {
  return setup.fp8 && options_.quantized && is_multiple(setup.shape.tokens()) &&
         is_multiple(setup.shape.source_tokens()) && is_multiple(in()) && is_multiple(out());
}

void LinearPart::declare(Declaration& declaration, std::int64_t rows, bool again) const {
  const bool overwrites = !trains_in_fp8(declaration.setup());
  declaration.weight(named("weight"), out(), in(), options_.stddev);
  if (overwrites) declaration.overwrites_gradient();
  if (divides(Divided::kOutputs)) {
    declaration.shard(shard_of(0, options_.segments, options_.tensor));
  } else if (divides(Divided::kInputs)) {
    declaration.shard(shard_of(1, {options_.in}, options_.tensor));
  }
  declaration.bias(named("bias"), out(), options_.bias);
  if (overwrites) declaration.overwrites_gradient();
  if (divides(Divided::kOutputs)) {
    declaration.shard(shard_of(0, options_.segments, options_.tensor));
  }
  declaration.linear(rows, in(), out(), again);
  declare_bytes(declaration, rows);
  if (!divides(Divided::kOutputs) && !divides(Divided::kInputs)) return;
  const DType dtype = declaration.setup().dtype;
  const bool of_outputs = options_.divided == Divided::kOutputs;
  const std::int64_t width = of_outputs ? in() : out();
  if (!divides_tokens(options_)) {
    return declaration.sums(rows * width, dtype, options_.tensor, !of_outputs && again);
  }
  // x, x again and dx; or y and dy.
  declaration.gathers(rows * width, dtype, options_.tensor, again);
  declaration.gathers((of_outputs ? 2 : 1) * rows * width, dtype, options_.tensor);
  declaration.activation(named("all_forward"), {rows, width}, Life::kForward);
  declaration.activation(named("all_backward"), {rows, width}, Life::kBackward);
}

void LinearPart::declare_bytes(Declaration& declaration, std::int64_t rows) const {
  if (!options_.quantized) return;
  const Setup& setup = declaration.setup();
  const bool fp8 = trains_in_fp8(setup);
  const auto bytes = [&](const char* name, std::int64_t first, std::int64_t second, Life life) {
    declaration.bytes(named(name), fp8 ? Shape{first, second} : Shape{0}, life);
  };
  bytes("x8", rows, in(), Life::kForward);
  bytes("x8t", in(), rows, keeps_transposed(setup) ? Life::kKept : Life::kBackward);
  bytes("w8", out(), in(), Life::kForward);
  bytes("w8t", in(), out(), keeps_transposed(setup) ? Life::kKept : Life::kBackward);
  bytes("dy8", rows, out(), Life::kBackward);
  bytes("dy8t", out(), rows, Life::kBackward);
  // Also where this layer is not in 8 bits, so that the places of the others do not shift.
  if (!setup.fp8) return;
  for (const Float8 format : {kForwardFormat, kForwardFormat, kGradientFormat}) {
    declaration.scaled(format);
  }
}

void LinearPart::quantize(const Pass& pass, ScaledTensor which, ops::Quantize call,
                          bool first) const {
  call.format = which == kOfDY ? kGradientFormat : kForwardFormat;
  call.scaling = scaling(pass, which);
  if (first) {
    call.amax = amax(pass, which);
    call.calibrates = pass.calibrates;
  }
  pass.ops.run(call);
}

void LinearPart::forward_fp8(const Pass& pass, const ops::Quantize& input, const Tensor& y,
                             const Tensor& residual) const {
  ops::Quantize x = input;
  ops::Quantize weight{.x = parameter(pass, kWeight), .scaling = {}};
  x.y = tensor(pass, kX);
  weight.y = tensor(pass, kW);
  if (keeps_transposed(pass.setup)) {
    x.transposed = tensor(pass, kXTransposed);
    weight.transposed = tensor(pass, kWTransposed);
  }
  quantize(pass, kOfX, x, true);
  quantize(pass, kOfWeight, weight, true);
  pass.ops.run(ops::ScaledMatmul{.a = tensor(pass, kX),
                                 .b = tensor(pass, kW),
                                 .a_format = kForwardFormat,
                                 .b_format = kForwardFormat,
                                 .a_scaling = scaling(pass, kOfX),
                                 .b_scaling = scaling(pass, kOfWeight),
                                 .bias = parameter(pass, kBias),
                                 .residual = residual,
                                 .y = y,
                                 .fast = true});
}

void LinearPart::forward_of_activated(const Pass& pass, ops::Activation activation, const Tensor& z,
                                      const Tensor& y, const Tensor& residual) const {
  forward_fp8(pass, {.x = {}, .z = z, .activation = activation, .scaling = {}}, y, residual);
}

Tensor LinearPart::own_rows(const Tensor& all) const {
  const Extent own = share_of(all.shape()[0], options_.tensor);
  return all.slice(own.first, own.count);
}

Tensor LinearPart::gathered(const Pass& pass, const Tensor& x, AllTokens when) const {
  if (!divides_tokens(options_)) return x;
  const Tensor& all = all_tokens(pass, when);
  pass.tensor->gather_rows(pass.ops, x, all);
  return all;
}

void LinearPart::forward(const Pass& pass, const Tensor& given, const Tensor& y,
                         const Tensor& residual) const {
  if (is_in_fp8(pass)) return forward_fp8(pass, {.x = given, .scaling = {}}, y, residual);
  const bool adds = adds_once(Divided::kInputs);
  if (divides_tokens(options_) && options_.divided == Divided::kInputs) {
    const Tensor& all = all_tokens(pass, kInForward);
    pass.ops.run(ops::Linear{.x = given,
                             .weight = parameter(pass, kWeight),
                             .bias = adds ? parameter(pass, kBias) : Tensor(),
                             .residual = {},
                             .y = all});
    const Tensor own = own_rows(all);
    if (ops::is_given(residual)) pass.ops.run(ops::Add{.a = own, .b = residual, .y = own});
    return pass.tensor->scatter_sum(pass.ops, all, y);
  }
  const ops::Linear whole{.x = gathered(pass, given, kInForward),
                          .weight = parameter(pass, kWeight),
                          .bias = adds ? parameter(pass, kBias) : Tensor(),
                          .residual = adds ? residual : Tensor(),
                          .y = y};
  if (divides(Divided::kInputs)) return forward_and_sum(pass, whole);
  pass.ops.run(whole);
}

void LinearPart::forward_and_sum(const Pass& pass, const ops::Linear& whole) const {
  in_summed_chunks(pass, whole.y, [&](const Extent& rows) {
    ops::Linear chunk = whole;
    chunk.x = rows_of(whole.x, rows);
    chunk.residual = rows_of(whole.residual, rows);
    chunk.y = rows_of(whole.y, rows);
    pass.ops.run(chunk);
  });
}

void LinearPart::backward_and_sum(const Pass& pass, const ops::LinearBackwardInput& whole) const {
  in_summed_chunks(pass, whole.dx, [&](const Extent& rows) {
    ops::LinearBackwardInput chunk = whole;
    chunk.dy = rows_of(whole.dy, rows);
    chunk.factor = rows_of(whole.factor, rows);
    chunk.z = rows_of(whole.z, rows);
    chunk.dx = rows_of(whole.dx, rows);
    pass.ops.run(chunk);
  });
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

void LinearPart::forward(const Pass& pass, const Tensor& given, ops::Activation activation,
                         const Tensor& y, const Tensor& derivative, const Tensor& z) const {
  const Tensor x = gathered(pass, given, kInForward);
  pass.ops.run(ops::LinearActivation{.x = x,
                                     .weight = parameter(pass, kWeight),
                                     .bias = parameter(pass, kBias),
                                     .activation = activation,
                                     .y = y,
                                     .derivative = derivative,
                                     .z = z});
}

// All is quantized before dx is made, which may lie on x.
void LinearPart::backward_fp8(const Pass& pass, const Backward& arguments) const {
  quantize(pass, kOfDY,
           {.x = arguments.dy,
            .z = arguments.dy_at,
            .activation = arguments.activation,
            .scaling = {},
            .y = tensor(pass, kDY),
            .transposed = tensor(pass, kDYTransposed),
            .dbias = gradient(pass, kBias)},
           true);
  if (!keeps_transposed(pass.setup)) {
    quantize(pass, kOfX,
             {.x = arguments.x,
              .z = arguments.x_of,
              .activation = arguments.activation,
              .scaling = {},
              .transposed = tensor(pass, kXTransposed)},
             false);
  }
  const Tensor& dweight = gradient(pass, kWeight);
  pass.ops.run(ops::ScaledMatmul{.a = tensor(pass, kDYTransposed),
                                 .b = tensor(pass, kXTransposed),
                                 .a_format = kGradientFormat,
                                 .b_format = kForwardFormat,
                                 .a_scaling = scaling(pass, kOfDY),
                                 .b_scaling = scaling(pass, kOfX),
                                 .residual = dweight,
                                 .y = dweight});
  if (!ops::is_given(arguments.dx)) return;
  if (!keeps_transposed(pass.setup)) {
    quantize(
        pass, kOfWeight,
        {.x = parameter(pass, kWeight), .scaling = {}, .transposed = tensor(pass, kWTransposed)},
        false);
  }
  pass.ops.run(ops::ScaledMatmul{.a = tensor(pass, kDY),
                                 .b = tensor(pass, kWTransposed),
                                 .a_format = kGradientFormat,
                                 .b_format = kForwardFormat,
                                 .a_scaling = scaling(pass, kOfDY),
                                 .b_scaling = scaling(pass, kOfWeight),
                                 .residual = arguments.accumulate ? arguments.dx : Tensor(),
                                 .y = arguments.dx});
}

// Now, or when the schedule of a pipeline has time for it.
void LinearPart::run_weight_gradient(const Pass& pass, const Tensor& dy, const Tensor& x) const {
  const ops::LinearBackwardWeight call{.dy = dy,
                                       .x = x,
                                       .dweight = gradient(pass, kWeight),
                                       .dbias = gradient(pass, kBias),
                                       .overwrite = pass.new_gradients};
  if (pass.weight_gradients != nullptr) {
    pass.weight_gradients->add(pass.ops, call);
  } else {
    pass.ops.run(call);
  }
}

void LinearPart::backward_of_own_tokens(const Pass& pass, const Backward& arguments) const {
  const bool of_inputs = options_.divided == Divided::kInputs;
  const Tensor& all = all_tokens(pass, kInBackward);
  pass.tensor->gather_rows(pass.ops, of_inputs ? arguments.dy : arguments.x, all);
  const Tensor& dy = of_inputs ? all : arguments.dy;
  run_weight_gradient(pass, dy, of_inputs ? arguments.x : all);
  if (!ops::is_given(arguments.dx)) return;
  pass.ops.run(ops::LinearBackwardInput{.dy = dy,
                                        .weight = parameter(pass, kWeight),
                                        .factor = arguments.factor,
                                        .dx = of_inputs ? arguments.dx : all,
                                        .activation = arguments.activation,
                                        .z = arguments.z});
  if (of_inputs) return;
  const Tensor own = own_rows(all);
  if (arguments.accumulate) pass.ops.run(ops::Add{.a = own, .b = arguments.dx, .y = own});
  pass.tensor->scatter_sum(pass.ops, all, arguments.dx);
}

void LinearPart::backward(const Pass& pass, const Backward& arguments) const {
  if (is_in_fp8(pass)) {
    backward_fp8(pass, arguments);
    finished(pass, kWeight);
    finished(pass, kBias);
    return;
  }
  if (divides_tokens(options_)) {
    backward_of_own_tokens(pass, arguments);
    finished(pass, kWeight);
    finished(pass, kBias);
    return;
  }
  run_weight_gradient(pass, arguments.dy, arguments.x);
  if (ops::is_given(arguments.dx)) {
    const ops::LinearBackwardInput whole{
        .dy = arguments.dy,
        .weight = parameter(pass, kWeight),
        .factor = arguments.factor,
        .dx = arguments.dx,
        .accumulate = arguments.accumulate && adds_once(Divided::kOutputs),
        .activation = arguments.activation,
        .z = arguments.z};
    if (divides(Divided::kOutputs)) {
      backward_and_sum(pass, whole);
    } else {
      pass.ops.run(whole);
    }
  }
  finished(pass, kWeight);
  finished(pass, kBias);
}

}  // namespace lockstep::nn
