#include "lockstep/nn/blocks/embedding.h"

#include <utility>

namespace lockstep::nn {
namespace {

EmbeddingOptions without_dropout(EmbeddingOptions options) {
  options.dropout = 0;
  return options;
}

}  // namespace

Embedding::Embedding(std::string name, const EmbeddingOptions& options,
                     const std::optional<NormOptions>& norm)
    : name_(std::move(name)),
      options_(options),
      next_{.parameter = 0, .tensor = kTensors},
      tables_(next_, "", name_, norm ? without_dropout(options) : options) {
  if (norm) norm_.emplace(next_, "norm", *norm);
}

Shape Embedding::output(const Setup& setup) const {
  return {rows_of(setup.shape, options_.side), options_.hidden};
}

BlockSpec Embedding::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const Shape rows = output(setup);
  const bool again = norm_ && setup.recompute == Recompute::kFull;
  declaration.activation("sum", norm_ ? rows : Shape{0}, Life::kRestored);
  // Where the norm's result goes when it is made again for its statistics alone.
  declaration.activation("spare", again ? rows : Shape{0}, Life::kForward);
  tables_.declare(declaration);
  if (norm_) norm_->declare(declaration, rows[0]);
  BlockSpec spec = declaration.take();
  spec.backward_reads_parameters = norm_.has_value();
  return spec;
}

ops::Dropout Embedding::dropout(const Pass& pass) const {
  return dropout_of(pass, "norm.dropout", options_.dropout,
                    sequence_of(pass.setup.shape, options_.side) * options_.hidden);
}

void Embedding::forward(const Pass& pass) {
  const bool has_output = ops::is_given(pass.out.x);
  if (!norm_) {
    if (has_output) tables_.forward(pass, pass.out.x);
    return;
  }
  const Tensor& y = has_output ? pass.out.x : pass.tensors[kSpare];
  tables_.forward(pass, pass.tensors[kSum]);
  norm_->forward(pass, pass.tensors[kSum], y);
  if (dropout(pass).probability > 0) {
    pass.ops.run(ops::Drop{.dropout = dropout(pass), .x = y, .y = y});
  }
}

void Embedding::restore(const Pass& pass) {
  if (norm_) tables_.forward(pass, pass.tensors[kSum]);
}

void Embedding::backward(const Pass& pass) {
  const Tensor& gradient = pass.dout.x;
  if (norm_) {
    if (dropout(pass).probability > 0) {
      pass.ops.run(ops::Drop{.dropout = dropout(pass), .x = gradient, .y = gradient});
    }
    norm_->backward(pass, {.dy = gradient, .sum = pass.tensors[kSum], .dsum = gradient});
  }
  tables_.backward(pass, gradient);
}

std::optional<RowGradient> Embedding::row_gradient(const Pass& pass) const {
  return tables_.row_gradient(pass, pass.dout.x);
}

const Decoding* Embedding::decoding() const {
  const bool plain = !norm_ && options_.types == 0 && options_.side == Side::kTarget;
  return plain ? this : nullptr;
}

DecodeSpec Embedding::decode_spec(const DecodeSetup& setup, const Ops& ops) const {
  tables_.check_positions(setup.positions);
  return forward_of(spec(setup.piece(), ops));
}

void Embedding::decode(const DecodePass& at) const { tables_.decode(at, at.pass.out.x); }

}  // namespace lockstep::nn
