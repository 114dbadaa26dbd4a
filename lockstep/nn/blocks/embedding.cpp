#include "lockstep/nn/blocks/embedding.h"

#include <utility>

#include "lockstep/nn/parts/expert_counts.h"

namespace lockstep::nn {

Embedding::Embedding(std::string name, const EmbeddingOptions& options)
    : name_(std::move(name)), options_(options), tables_(next_, "", name_, options) {}

Shape Embedding::output(const Setup& setup) const {
  return {stream_tokens(setup.shape, options_.side, options_.tensor).count, options_.hidden};
}

Shape Embedding::memory(const Setup& setup) const {
  if (options_.counted_experts == 0) return {0};
  return counts_shape(options_.counted_experts, setup.dtype);
}

BlockSpec Embedding::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  tables_.declare(declaration);
  return declaration.take();
}

void Embedding::forward(const Pass& pass) {
  if (!ops::is_given(pass.out.x)) return;
  if (options_.counted_experts > 0) {
    pass.ops.in_order([&] { fill_zero(pass.out.memory); });
  }
  tables_.forward(pass, pass.out.x);
}

void Embedding::backward(const Pass& pass) { tables_.backward(pass, pass.dout.x); }

std::optional<SparseGradient> Embedding::sparse_gradient(const Pass& pass) const {
  return tables_.sparse_gradient(pass, pass.dout.x);
}

const Decoding* Embedding::decoding() const {
  const bool plain = options_.types == 0 && options_.side == Side::kTarget;
  return plain ? this : nullptr;
}

DecodeSpec Embedding::decode_spec(const DecodeSetup& setup, const Ops& ops) const {
  tables_.check_positions(setup.positions);
  return forward_of(spec(setup.piece(), ops));
}

void Embedding::decode(const DecodePass& at) const { tables_.decode(at, at.pass.out.x); }

}  // namespace lockstep::nn
