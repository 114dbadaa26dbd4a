#include "lockstep/nn/blocks/sandwich_layer.h"

#include <algorithm>
#include <utility>

#include "lockstep/nn/parts/residual.h"

namespace lockstep::nn {

SandwichLayer::SandwichLayer(std::string name, const LlamaLayerOptions& options)
    : name_(std::move(name)),
      options_(options),
      next_{.parameter = 0, .tensor = kTensors},
      norm1_(next_, "norm1", options.norm),
      attention_(next_, "attention", options.attention),
      norm2_(next_, "norm2", options.norm),
      norm3_(next_, "norm3", options.norm),
      mlp_(next_, "mlp", options.feed_forward),
      norm4_(next_, "norm4", options.norm) {}

Shape SandwichLayer::output(const Setup& setup) const {
  return stream_of(setup, options_.attention);
}

BlockSpec SandwichLayer::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const Shape stream = output(setup);
  const std::int64_t own_tokens = stream[0];
  const std::int64_t tokens = tokens_of(setup.shape, options_.attention.side);
  declaration.activation(
      "normed1", stream,
      attention_.packing().keeps_quantized_input(setup) ? Life::kForward : Life::kRestored);
  declaration.activation("attended", stream, Life::kKept);
  declaration.activation("sum", stream, Life::kRestored);
  declaration.activation("normed3", stream, Life::kRestored);
  declaration.activation("fed", stream, Life::kKept);
  // Where the last norm's result goes when it is made again for its statistic alone.
  const bool full = setup.recompute == Recompute::kFull;
  declaration.activation("spare", full ? stream : Shape{0}, Life::kForward);
  declaration.activation("branch", stream, Life::kBackward);
  norm1_.declare(declaration, own_tokens);
  attention_.declare(declaration, mlp_.spent_width());
  norm2_.declare(declaration, own_tokens);
  norm3_.declare(declaration, own_tokens);
  mlp_.declare(declaration, tokens, true);
  norm4_.declare(declaration, own_tokens);
  return declaration.take();
}

ops::Dropout SandwichLayer::dropout(const Pass& pass, std::string_view branch) const {
  return branch_dropout(pass, options_.attention, options_.dropout, branch);
}

void SandwichLayer::join_attention(const Pass& pass, const ops::Dropout& dropping) const {
  const Tensor& sum = pass.tensors[kSum];
  norm2_.forward(pass, pass.tensors[kAttended], sum);
  norm3_.forward(pass, pass.in.x, dropping, sum, pass.tensors[kNormed3]);
}

void SandwichLayer::join_feed_forward(const Pass& pass, const ops::Dropout& dropping) const {
  const bool again = !ops::is_given(pass.out.x);
  const Tensor& out = again ? pass.tensors[kSpare] : pass.out.x;
  norm4_.forward(pass, pass.tensors[kFed], out);
  if (again) return;
  if (dropping.probability > 0) pass.ops.run(ops::Drop{.dropout = dropping, .x = out, .y = out});
  pass.ops.run(ops::Add{.a = pass.tensors[kSum], .b = out, .y = out});
}

void SandwichLayer::forward(const Pass& pass) {
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  attention_.forward(pass, pass.tensors[kNormed1], pass.tensors[kAttended]);
  join_attention(pass, dropout(pass, "attention"));
  mlp_.forward_up(pass, pass.tensors[kNormed3]);
  mlp_.forward_down(pass, pass.tensors[kFed]);
  join_feed_forward(pass, dropout(pass, "mlp"));
}

void SandwichLayer::restore(const Pass& pass) {
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  join_attention(pass, dropout(pass, "attention"));
  mlp_.restore(pass);
}

void SandwichLayer::backward(const Pass& pass) {
  const Tensor& dx = pass.din.x;
  const Tensor& normed1 = pass.tensors[kNormed1];
  const Tensor& normed3 = pass.tensors[kNormed3];
  const Tensor& branch = pass.tensors[kBranch];

  const Tensor dout = dropped_gradient(pass, dropout(pass, "mlp"), pass.dout.x, branch);
  norm4_.backward(pass, {.dy = dout, .sum = pass.tensors[kFed], .dresidual = {}, .dsum = branch});
  const Tensor dz = mlp_.backward_down(pass, branch);
  mlp_.backward_up(pass, {.dy = dz, .x = normed3, .dx = dx});

  const ops::Dropout dropping = dropout(pass, "attention");
  const bool drops = dropping.probability > 0;
  norm3_.backward(pass, {.dy = dx,
                         .sum = pass.tensors[kSum],
                         .dresidual = pass.dout.x,
                         .dsum = dx,
                         .dropout = dropping,
                         .dbranch = drops ? branch : Tensor()});
  norm2_.backward(
      pass,
      {.dy = drops ? branch : dx, .sum = pass.tensors[kAttended], .dresidual = {}, .dsum = branch});

  const Tensor dpacked = attention_.backward(pass, branch, normed3, mlp_.spent(pass));
  attention_.packing().backward(pass, {.dy = dpacked, .x = normed1, .dx = normed3});
  norm1_.backward(pass, {.dy = normed3, .sum = pass.in.x, .dresidual = dx, .dsum = dx});
}

DecodeSpec SandwichLayer::decode_spec(const DecodeSetup& setup, const Ops& ops) const {
  DecodeSpec result = forward_of(spec(setup.piece(), ops));
  result.cache = {attention_.declare_cache(setup)};
  result.scratch = std::max(result.scratch, attention_.decode_scratch(setup, ops));
  return result;
}

void SandwichLayer::decode(const DecodePass& at) const {
  const Pass& pass = at.pass;
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  attention_.decode(at, at.cache[0], pass.tensors[kNormed1], pass.tensors[kAttended]);
  join_attention(pass, {});
  mlp_.forward_up(pass, pass.tensors[kNormed3]);
  mlp_.forward_down(pass, pass.tensors[kFed]);
  join_feed_forward(pass, {});
}

}  // namespace lockstep::nn
