#include "lockstep/nn/blocks/bert_layer.h"

#include <utility>

#include "lockstep/nn/parts/residual.h"

namespace lockstep::nn {

BertLayer::BertLayer(std::string name, const LayerOptions& options)
    : name_(std::move(name)),
      options_(options),
      next_{.parameter = 0, .tensor = kTensors},
      attention_(next_, "attention", options.attention),
      norm1_(next_, "norm1", options.norm),
      mlp_(next_, "mlp", options.feed_forward),
      norm2_(next_, "norm2", options.norm) {}

Shape BertLayer::output(const Setup& setup) const { return stream_of(setup, options_.attention); }

BlockSpec BertLayer::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const Shape stream = output(setup);
  const std::int64_t own_tokens = stream[0];
  const std::int64_t tokens = setup.shape.tokens();
  const bool full = setup.recompute == Recompute::kFull;
  declaration.activation("sum1", stream, Life::kKept);
  declaration.activation("middle", stream, Life::kRestored);
  declaration.activation("sum2", stream, Life::kKept);
  // Where the last norm's result goes when it is made again for its statistics alone.
  declaration.activation("spare", full ? stream : Shape{0}, Life::kForward);
  declaration.activation("dropped", options_.dropout > 0 ? stream : Shape{0}, Life::kBackward);
  attention_.declare(declaration, mlp_.spent_width());
  norm1_.declare(declaration, own_tokens);
  mlp_.declare(declaration, tokens, true);
  norm2_.declare(declaration, own_tokens);
  return declaration.take();
}

ops::Dropout BertLayer::dropout(const Pass& pass, std::string_view branch) const {
  return branch_dropout(pass, options_.attention, options_.dropout, branch);
}

void BertLayer::forward(const Pass& pass) {
  const Tensor& sum1 = pass.tensors[kSum1];
  const Tensor& middle = pass.tensors[kMiddle];
  const Tensor& sum2 = pass.tensors[kSum2];
  attention_.forward(pass, pass.in.x, sum1);
  norm1_.forward(pass, pass.in.x, dropout(pass, "attention"), sum1, middle);
  mlp_.forward_up(pass, middle);
  mlp_.forward_down(pass, sum2);
  norm2_.forward(pass, middle, dropout(pass, "mlp"), sum2,
                 ops::is_given(pass.out.x) ? pass.out.x : pass.tensors[kSpare]);
}

void BertLayer::restore(const Pass& pass) {
  norm1_.forward(pass, pass.tensors[kSum1], pass.tensors[kMiddle]);
  mlp_.restore(pass);
}

void BertLayer::backward(const Pass& pass) {
  const Tensor& dx = pass.din.x;
  const Tensor& middle = pass.tensors[kMiddle];
  const ops::Dropout mlp_dropout = dropout(pass, "mlp");
  const bool drops = mlp_dropout.probability > 0;
  const Tensor dropped = drops ? pass.tensors[kDropped] : Tensor();
  const Tensor& dbranch = drops ? dropped : dx;

  norm2_.backward(pass, {.dy = pass.dout.x,
                         .sum = pass.tensors[kSum2],
                         .dresidual = {},
                         .dsum = dx,
                         .dropout = mlp_dropout,
                         .dbranch = dropped});
  const Tensor dz = mlp_.backward_down(pass, dbranch);
  mlp_.backward_up(pass, {.dy = dz, .x = middle, .dx = dx, .accumulate = true});
  norm1_.backward(pass, {.dy = dx,
                         .sum = pass.tensors[kSum1],
                         .dresidual = {},
                         .dsum = dx,
                         .dropout = dropout(pass, "attention"),
                         .dbranch = dropped});

  const Tensor dpacked = attention_.backward(pass, dbranch, middle, mlp_.spent(pass));
  attention_.packing().backward(pass,
                                {.dy = dpacked, .x = pass.in.x, .dx = dx, .accumulate = true});
}

}  // namespace lockstep::nn
