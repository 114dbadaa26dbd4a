#include "lockstep/nn/blocks/llama_layer.h"

#include <algorithm>
#include <utility>

namespace lockstep::nn {

LlamaLayer::LlamaLayer(std::string name, const LlamaLayerOptions& options)
    : name_(std::move(name)),
      options_(options),
      next_{.parameter = 0, .tensor = kTensors},
      norm1_(next_, "norm1", options.norm),
      attention_(next_, "attention", options.attention),
      norm2_(next_, "norm2", options.norm),
      mlp_(next_, "mlp", options.feed_forward) {}

Shape LlamaLayer::output(const Setup& setup) const {
  return {setup.shape.rows(), options_.attention.hidden};
}

BlockSpec LlamaLayer::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const Shape stream = output(setup);
  const std::int64_t rows = stream[0];
  declaration.activation("normed1", stream, Life::kRestored);
  declaration.activation("sum", stream, Life::kKept);
  declaration.activation("normed2", stream, Life::kRestored);
  norm1_.declare(declaration, rows);
  attention_.declare(declaration, 2 * options_.feed_forward.width);
  norm2_.declare(declaration, rows);
  mlp_.declare(declaration, rows, false);
  return declaration.take();
}

void LlamaLayer::forward(const Pass& pass) {
  const Tensor& sum = pass.tensors[kSum];
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  attention_.forward(pass, pass.tensors[kNormed1], sum);
  norm2_.forward(pass, pass.in.x, {}, sum, pass.tensors[kNormed2]);
  mlp_.forward_up(pass, pass.tensors[kNormed2]);
  if (ops::is_given(pass.out.x)) mlp_.forward_down(pass, pass.out.x, sum);
}

void LlamaLayer::restore(const Pass& pass) {
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  norm2_.forward(pass, pass.tensors[kSum], pass.tensors[kNormed2]);
  mlp_.restore(pass);
}

void LlamaLayer::backward(const Pass& pass) {
  const Tensor& dx = pass.din.x;
  const Tensor& normed1 = pass.tensors[kNormed1];
  const Tensor& normed2 = pass.tensors[kNormed2];

  const Tensor dgate_up = mlp_.backward_down(pass, pass.dout.x);
  mlp_.gate_up().backward(pass, {.dy = dgate_up, .x = normed2, .dx = dx});
  norm2_.backward(pass,
                  {.dy = dx, .sum = pass.tensors[kSum], .dresidual = pass.dout.x, .dsum = dx});

  const Tensor dpacked = attention_.backward(pass, dx, normed2, mlp_.spent(pass));
  attention_.packing().backward(pass, {.dy = dpacked, .x = normed1, .dx = normed2});
  norm1_.backward(pass, {.dy = normed2, .sum = pass.in.x, .dresidual = dx, .dsum = dx});
}

const Decoding* LlamaLayer::decoding() const { return options_.attention.causal ? this : nullptr; }

DecodeSpec LlamaLayer::decode_spec(const DecodeSetup& setup, const Ops& ops) const {
  DecodeSpec result = forward_of(spec(setup.piece(), ops));
  result.cache = {attention_.declare_cache(setup)};
  result.scratch = std::max(result.scratch, attention_.decode_scratch(setup, ops));
  return result;
}

void LlamaLayer::decode(const DecodePass& at) const {
  const Pass& pass = at.pass;
  const Tensor& sum = pass.tensors[kSum];
  norm1_.forward(pass, pass.in.x, pass.tensors[kNormed1]);
  attention_.decode(at, at.cache[0], pass.tensors[kNormed1], sum);
  norm2_.forward(pass, pass.in.x, {}, sum, pass.tensors[kNormed2]);
  mlp_.forward_up(pass, pass.tensors[kNormed2]);
  mlp_.forward_down(pass, pass.out.x, sum);
}

}  // namespace lockstep::nn
