#include "lockstep/nn/blocks/decoder_layer.h"

#include <utility>

#include "lockstep/nn/parts/residual.h"

namespace lockstep::nn {

template <class FeedForward>
DecoderLayer<FeedForward>::DecoderLayer(std::string name,
                                        const LayerOptionsWith<FeedForward>& options)
    : name_(std::move(name)),
      options_(options),
      next_{.parameter = 0, .tensor = kTensors},
      norm1_(next_, "norm1", options.norm),
      attention_(next_, "attention", options.attention),
      norm2_(next_, "norm2", options.norm),
      cross_(next_, "cross", options.attention),
      norm3_(next_, "norm3", options.norm),
      mlp_(next_, "mlp", options.feed_forward) {}

template <class FeedForward>
Shape DecoderLayer<FeedForward>::output(const Setup& setup) const {
  return stream_of(setup, options_.attention);
}

template <class FeedForward>
BlockSpec DecoderLayer<FeedForward>::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const Shape stream = output(setup);
  const std::int64_t own_tokens = stream[0];
  const std::int64_t tokens = setup.shape.tokens();
  declaration.activation("normed1", stream, Life::kRestored);
  declaration.activation("sum1", stream, Life::kKept);
  declaration.activation("normed2", stream, Life::kRestored);
  declaration.activation("sum2", stream, Life::kKept);
  declaration.activation("normed3", stream, Life::kRestored);
  declaration.activation("dropped", options_.dropout > 0 ? stream : Shape{0}, Life::kBackward);
  norm1_.declare(declaration, own_tokens);
  attention_.declare(declaration, mlp_.spent_width());
  norm2_.declare(declaration, own_tokens);
  cross_.declare(declaration);
  norm3_.declare(declaration, own_tokens);
  mlp_.declare(declaration, tokens, false);
  return declaration.take();
}

template <class FeedForward>
ops::Dropout DecoderLayer<FeedForward>::dropout(const Pass& pass, std::string_view branch) const {
  return branch_dropout(pass, options_.attention, options_.dropout, branch);
}

template <class FeedForward>
void DecoderLayer<FeedForward>::forward(const Pass& pass) {
  const Tensor& sum1 = pass.tensors[kSum1];
  const Tensor& sum2 = pass.tensors[kSum2];
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  attention_.forward(pass, pass.tensors[kNormed1], sum1);
  norm2_.forward(pass, pass.in.x, dropout(pass, "attention"), sum1, pass.tensors[kNormed2]);
  cross_.forward(pass, pass.tensors[kNormed2], sum2);
  norm3_.forward(pass, sum1, dropout(pass, "cross"), sum2, pass.tensors[kNormed3]);
  mlp_.forward_up(pass, pass.tensors[kNormed3]);
  if (!ops::is_given(pass.out.x)) return;
  add_feed_forward(pass, mlp_, sum2, dropout(pass, "mlp"), pass.out.x);
}

template <class FeedForward>
void DecoderLayer<FeedForward>::restore(const Pass& pass) {
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  norm2_.forward(pass, pass.tensors[kSum1], pass.tensors[kNormed2]);
  norm3_.forward(pass, pass.tensors[kSum2], pass.tensors[kNormed3]);
  mlp_.restore(pass);
}

template <class FeedForward>
void DecoderLayer<FeedForward>::backward(const Pass& pass) {
  const Tensor& dx = pass.din.x;
  const Tensor& normed1 = pass.tensors[kNormed1];
  const Tensor& normed2 = pass.tensors[kNormed2];
  const Tensor& normed3 = pass.tensors[kNormed3];
  const ops::Dropout mlp_dropout = dropout(pass, "mlp");
  const bool drops = mlp_dropout.probability > 0;
  const Tensor dropped = drops ? pass.tensors[kDropped] : Tensor();
  const Tensor& dbranch = drops ? dropped : dx;

  const Tensor dz =
      mlp_.backward_down(pass, dropped_gradient(pass, mlp_dropout, pass.dout.x, dropped));
  mlp_.backward_up(pass, {.dy = dz, .x = normed3, .dx = dx});
  norm3_.backward(pass, {.dy = dx,
                         .sum = pass.tensors[kSum2],
                         .dresidual = pass.dout.x,
                         .dsum = dx,
                         .dropout = dropout(pass, "cross"),
                         .dbranch = dropped});

  cross_.backward(pass, dbranch, normed2, normed3, normed2);
  norm2_.backward(pass, {.dy = normed2,
                         .sum = pass.tensors[kSum1],
                         .dresidual = dx,
                         .dsum = dx,
                         .dropout = dropout(pass, "attention"),
                         .dbranch = dropped});

  const Tensor dpacked = attention_.backward(pass, dbranch, normed2, mlp_.spent(pass));
  attention_.packing().backward(pass, {.dy = dpacked, .x = normed1, .dx = normed2});
  norm1_.backward(pass, {.dy = normed2, .sum = pass.in.x, .dresidual = dx, .dsum = dx});
}

template class DecoderLayer<FeedForwardPart>;
template class DecoderLayer<SwiGluPart>;

}  // namespace lockstep::nn
