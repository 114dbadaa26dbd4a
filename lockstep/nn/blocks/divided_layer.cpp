#include "lockstep/nn/blocks/divided_layer.h"

#include <utility>

#include "lockstep/nn/parts/residual.h"

namespace lockstep::nn {
namespace {

constexpr const char* kGainName = "norm2.gain";
constexpr const char* kRouterName = "mlp.router.weight";

NormOptions tied(NormOptions norm, const std::string& layer) {
  norm.tied_to = layer + "." + kGainName;
  return norm;
}

ExpertsOptions tied(ExpertsOptions experts, const std::string& layer) {
  experts.router = layer + "." + kRouterName;
  return experts;
}

}  // namespace

AttentionHalf::AttentionHalf(std::string name, const MixtralLayerOptions& options)
    : name_(std::move(name)),
      options_(options),
      next_{.parameter = kParameters, .tensor = kTensors},
      norm_(next_, "norm1", options.norm),
      attention_(next_, "attention", options.attention) {}

Shape AttentionHalf::output(const Setup& setup) const {
  return stream_of(setup, options_.attention);
}

BlockSpec AttentionHalf::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const ExpertsOptions& experts = options_.feed_forward;
  declaration.gain(kGainName, options_.norm.width);
  declaration.weight(kRouterName, experts.experts, experts.hidden, experts.stddev);
  const Shape stream = output(setup);
  const bool full = setup.recompute == Recompute::kFull;
  declaration.activation("normed1", stream, Life::kRestored);
  // Where the sum goes when forward is run again.
  declaration.activation("spare", full ? stream : Shape{0}, Life::kForward);
  declaration.activation("workspace", stream, Life::kBackward);
  declaration.activation("dropped", options_.dropout > 0 ? stream : Shape{0}, Life::kBackward);
  norm_.declare(declaration, stream[0]);
  attention_.declare(declaration, 0);
  return declaration.take();
}

void AttentionHalf::forward(const Pass& pass) {
  const bool again = !ops::is_given(pass.out.x);
  const Tensor& sum = again ? pass.tensors[kSpare] : pass.out.x;
  norm_.forward(pass, pass.in.x, pass.tensors[kNormed]);
  attention_.forward(pass, pass.tensors[kNormed], sum);
  if (again) return;
  const ops::Dropout dropout =
      branch_dropout(pass, options_.attention, options_.dropout, "attention");
  if (dropout.probability > 0) pass.ops.run(ops::Drop{.dropout = dropout, .x = sum, .y = sum});
  pass.ops.run(ops::Add{.a = pass.in.x, .b = sum, .y = sum});
}

void AttentionHalf::restore(const Pass& pass) {
  norm_.forward(pass, pass.in.x, pass.tensors[kNormed]);
}

void AttentionHalf::backward(const Pass& pass) {
  const Tensor& workspace = pass.tensors[kWorkspace];
  const Tensor dbranch = dropped_gradient(
      pass, branch_dropout(pass, options_.attention, options_.dropout, "attention"), pass.dout.x,
      pass.tensors[kDropped]);
  const Tensor dpacked = attention_.backward(pass, dbranch, workspace, {});
  attention_.packing().backward(pass, {.dy = dpacked, .x = pass.tensors[kNormed], .dx = workspace});
  norm_.backward(pass,
                 {.dy = workspace, .sum = pass.in.x, .dresidual = pass.dout.x, .dsum = pass.din.x});
}

ExpertsHalf::ExpertsHalf(std::string layer, const MixtralLayerOptions& options)
    : layer_(std::move(layer)),
      options_(options),
      next_{.parameter = 0, .tensor = kTensors},
      norm_(next_, "norm2", tied(options.norm, layer_)),
      mlp_(next_, "", tied(options.feed_forward, layer_)) {}

Shape ExpertsHalf::output(const Setup& setup) const { return stream_of(setup, options_.attention); }

BlockSpec ExpertsHalf::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const Shape stream = output(setup);
  declaration.activation("normed2", stream, Life::kRestored);
  declaration.activation("dropped", options_.dropout > 0 ? stream : Shape{0}, Life::kBackward);
  norm_.declare(declaration, stream[0]);
  mlp_.declare(declaration, tokens_of(setup.shape, options_.attention.side), false);
  return declaration.take();
}

void ExpertsHalf::forward(const Pass& pass) {
  norm_.forward(pass, pass.in.x, pass.tensors[kNormed]);
  mlp_.forward_up(pass, pass.tensors[kNormed]);
  if (!ops::is_given(pass.out.x)) return;
  add_feed_forward(pass, mlp_, pass.in.x,
                   branch_dropout(pass, options_.attention, options_.dropout, "mlp"), pass.out.x);
}

void ExpertsHalf::restore(const Pass& pass) {
  norm_.forward(pass, pass.in.x, pass.tensors[kNormed]);
  mlp_.restore(pass, pass.tensors[kNormed]);
}

void ExpertsHalf::backward(const Pass& pass) {
  const Tensor& dx = pass.din.x;
  const Tensor dmlp =
      dropped_gradient(pass, branch_dropout(pass, options_.attention, options_.dropout, "mlp"),
                       pass.dout.x, pass.tensors[kDropped]);
  const Tensor dz = mlp_.backward_down(pass, dmlp);
  mlp_.backward_up(pass, {.dy = dz, .x = pass.tensors[kNormed], .dx = dx});
  norm_.backward(pass, {.dy = dx, .sum = pass.in.x, .dresidual = pass.dout.x, .dsum = dx});
}

}  // namespace lockstep::nn
