#include "lockstep/nn/blocks/pre_norm_layer.h"

#include <algorithm>
#include <utility>

#include "lockstep/nn/parts/residual.h"

namespace lockstep::nn {

template <class FeedForward>
PreNormLayer<FeedForward>::PreNormLayer(std::string name,
                                        const LayerOptionsWith<FeedForward>& options)
    : name_(std::move(name)),
      options_(options),
      next_{.parameter = 0, .tensor = kTensors},
      norm1_(next_, "norm1", options.norm),
      attention_(next_, "attention", options.attention),
      norm2_(next_, "norm2", options.norm),
      mlp_(next_, "mlp", options.feed_forward) {}

template <class FeedForward>
Shape PreNormLayer<FeedForward>::output(const Setup& setup) const {
  return stream_of(setup, options_.attention);
}

template <class FeedForward>
BlockSpec PreNormLayer<FeedForward>::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const Shape stream = output(setup);
  const std::int64_t own_tokens = stream[0];
  const std::int64_t tokens = tokens_of(setup.shape, options_.attention.side);
  declaration.activation(
      "normed1", stream,
      attention_.packing().keeps_quantized_input(setup) ? Life::kForward : Life::kRestored);
  declaration.activation("sum", stream, options_.parallel_residual ? Life::kForward : Life::kKept);
  declaration.activation("normed2", stream, Life::kRestored);
  declaration.activation("dropped", options_.dropout > 0 ? stream : Shape{0}, Life::kBackward);
  norm1_.declare(declaration, own_tokens);
  attention_.declare(declaration, mlp_.spent_width());
  norm2_.declare(declaration, own_tokens);
  mlp_.declare(declaration, tokens, false);
  return declaration.take();
}

template <class FeedForward>
ops::Dropout PreNormLayer<FeedForward>::dropout(const Pass& pass, std::string_view branch) const {
  return branch_dropout(pass, options_.attention, options_.dropout, branch);
}

template <class FeedForward>
void PreNormLayer<FeedForward>::join_attention(const Pass& pass,
                                               const ops::Dropout& dropping) const {
  const Tensor& sum = pass.tensors[kSum];
  if (!options_.parallel_residual) {
    return norm2_.forward(pass, pass.in.x, dropping, sum, pass.tensors[kNormed2]);
  }
  if (dropping.probability > 0) pass.ops.run(ops::Drop{.dropout = dropping, .x = sum, .y = sum});
  pass.ops.run(ops::Add{.a = sum, .b = pass.in.x, .y = sum});
  norm2_.forward(pass, pass.in.x, pass.tensors[kNormed2]);
}

template <class FeedForward>
Tensor PreNormLayer<FeedForward>::backward_join(const Pass& pass, const Tensor& dx) const {
  const Tensor& dropped = pass.tensors[kDropped];
  const ops::Dropout attention_dropout = dropout(pass, "attention");
  if (options_.parallel_residual) {
    norm2_.backward(pass, {.dy = dx, .sum = pass.in.x, .dresidual = pass.dout.x, .dsum = dx});
    return dropped_gradient(pass, attention_dropout, pass.dout.x, dropped);
  }
  const bool drops = attention_dropout.probability > 0;
  norm2_.backward(pass, {.dy = dx,
                         .sum = pass.tensors[kSum],
                         .dresidual = pass.dout.x,
                         .dsum = dx,
                         .dropout = attention_dropout,
                         .dbranch = drops ? dropped : Tensor()});
  return drops ? dropped : dx;
}

template <class FeedForward>
void PreNormLayer<FeedForward>::forward(const Pass& pass) {
  const Tensor& sum = pass.tensors[kSum];
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  attention_.forward(pass, pass.tensors[kNormed1], sum);
  join_attention(pass, dropout(pass, "attention"));
  mlp_.forward_up(pass, pass.tensors[kNormed2]);
  if (!ops::is_given(pass.out.x)) return;
  add_feed_forward(pass, mlp_, sum, dropout(pass, "mlp"), pass.out.x);
}

template <class FeedForward>
void PreNormLayer<FeedForward>::restore(const Pass& pass) {
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  norm2_.forward(pass, options_.parallel_residual ? pass.in.x : pass.tensors[kSum],
                 pass.tensors[kNormed2]);
  mlp_.restore(pass, pass.tensors[kNormed2]);
}

template <class FeedForward>
void PreNormLayer<FeedForward>::backward(const Pass& pass) {
  const Tensor& dx = pass.din.x;
  const Tensor& normed1 = pass.tensors[kNormed1];
  const Tensor& normed2 = pass.tensors[kNormed2];
  const Tensor& dropped = pass.tensors[kDropped];

  const Tensor dmlp = dropped_gradient(pass, dropout(pass, "mlp"), pass.dout.x, dropped);
  const Tensor dz = mlp_.backward_down(pass, dmlp);
  mlp_.backward_up(pass, {.dy = dz, .x = normed2, .dx = dx});
  const Tensor dbranch = backward_join(pass, dx);

  const Tensor dpacked = attention_.backward(pass, dbranch, normed2, mlp_.spent(pass));
  attention_.packing().backward(pass, {.dy = dpacked, .x = normed1, .dx = normed2});
  norm1_.backward(pass, {.dy = normed2, .sum = pass.in.x, .dresidual = dx, .dsum = dx});
}

template <class FeedForward>
const Decoding* PreNormLayer<FeedForward>::decoding() const {
  return options_.attention.causal ? this : nullptr;
}

template <class FeedForward>
DecodeSpec PreNormLayer<FeedForward>::decode_spec(const DecodeSetup& setup, const Ops& ops) const {
  DecodeSpec result = forward_of(spec(setup.piece(), ops));
  result.cache = {attention_.declare_cache(setup)};
  result.scratch = std::max(result.scratch, attention_.decode_scratch(setup, ops));
  return result;
}

template <class FeedForward>
void PreNormLayer<FeedForward>::decode(const DecodePass& at) const {
  const Pass& pass = at.pass;
  const Tensor& sum = pass.tensors[kSum];
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  attention_.decode(at, at.cache[0], pass.tensors[kNormed1], sum);
  join_attention(pass, {});
  mlp_.forward_up(pass, pass.tensors[kNormed2]);
  mlp_.forward_down(pass, pass.out.x, sum);
}

template class PreNormLayer<FeedForwardPart>;
template class PreNormLayer<SwiGluPart>;
template class PreNormLayer<ExpertsPart>;

}  // namespace lockstep::nn
