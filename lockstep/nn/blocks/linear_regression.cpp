#include "lockstep/nn/blocks/linear_regression.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

Tensor in_compute_type(const Pass& pass, const Tensor& field, const Tensor& converted) {
  if (!ops::is_given(converted)) return field;
  pass.ops.run(ops::Cast{.from = field, .to = converted});
  return converted;
}

}  // namespace

LinearRegression::LinearRegression(std::string name, std::int64_t features)
    : name_(std::move(name)),
      features_(features),
      next_{.parameter = 0, .tensor = kTensors},
      linear_(next_, "", {.in = features, .out = 1, .bias = true, .stddev = 0}) {}

BlockSpec LinearRegression::spec(const Setup& setup, const Ops& ops) const {
  if (setup.shape.sequence != 1) {
    fail(ErrorCode::kInvalidArgument, "a linear model needs sequences of length 1; got {}",
         setup.shape.sequence);
  }
  Declaration declaration(setup, ops);
  const std::int64_t tokens = setup.shape.tokens();
  const bool casts = setup.dtype != DType::kF32;
  declaration.activation("inputs", casts ? Shape{tokens, features_} : Shape{0}, Life::kKept);
  declaration.activation("outputs", casts ? Shape{tokens, 1} : Shape{0}, Life::kKept);
  declaration.activation("predicted", {tokens, 1}, Life::kKept);
  linear_.declare(declaration, tokens);
  return declaration.take();
}

Tensor LinearRegression::inputs(const Pass& pass) const {
  const Tensor& field =
      checked(pass.batch.inputs, "inputs", name_, DType::kF32, {pass.setup.shape.batch, features_});
  return in_compute_type(pass, field, pass.tensors[kInputs]);
}

Tensor LinearRegression::outputs(const Pass& pass) const {
  const bool may_be_absent = !pass.training && ops::is_given(pass.logits);
  if (may_be_absent && !ops::is_given(pass.batch.outputs)) return {};
  const Tensor& field =
      checked(pass.batch.outputs, "outputs", name_, DType::kF32, {pass.setup.shape.batch, 1});
  return in_compute_type(pass, field, pass.tensors[kOutputs]);
}

void LinearRegression::forward(const Pass& pass) {
  const Tensor targets = outputs(pass);
  const Tensor& predicted = pass.tensors[kPredicted];
  linear_.forward(pass, inputs(pass), predicted);
  if (ops::is_given(pass.logits)) pass.ops.run(ops::Cast{.from = predicted, .to = pass.logits});
  if (!ops::is_given(targets)) return;
  pass.ops.run(
      ops::SquaredError{.x = predicted, .target = targets, .losses = pass.losses, .dx = {}});
}

void LinearRegression::backward(const Pass& pass) {
  const Tensor& predicted = pass.tensors[kPredicted];
  pass.ops.run(ops::SquaredError{.x = predicted,
                                 .target = outputs(pass),
                                 .losses = pass.losses,
                                 .dx = predicted,
                                 .factor = pass.loss_factor});
  linear_.backward(pass, {.dy = predicted, .x = inputs(pass), .dx = {}});
}

}  // namespace lockstep::nn
