#include "lockstep/nn/blocks/embedding_norm.h"

#include <utility>

namespace lockstep::nn {

EmbeddingNorm::EmbeddingNorm(std::string embedding, const NormOptions& norm, double dropout)
    : embedding_(std::move(embedding)),
      width_(norm.width),
      tensor_(norm.tensor),
      dropout_(dropout),
      next_{.parameter = 0, .tensor = kTensors},
      norm_(next_, "", norm) {}

Shape EmbeddingNorm::output(const Setup& setup) const {
  return {stream_tokens(setup.shape, Side::kTarget, tensor_).count, width_};
}

BlockSpec EmbeddingNorm::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const bool again = setup.recompute == Recompute::kFull;
  // Where the norm's result goes when it is made again for its statistics alone.
  declaration.activation("spare", again ? output(setup) : Shape{0}, Life::kForward);
  norm_.declare(declaration, output(setup)[0]);
  return declaration.take();
}

void EmbeddingNorm::drop(const Pass& pass, const Tensor& rows) const {
  const ops::Dropout dropout =
      own_part(dropout_of(pass, std::string(kNorm) + ".dropout", dropout_,
                          pass.setup.shape.sequence * width_),
               stream_tokens(pass.setup.shape, Side::kTarget, tensor_), width_);
  if (dropout.probability > 0) pass.ops.run(ops::Drop{.dropout = dropout, .x = rows, .y = rows});
}

void EmbeddingNorm::forward(const Pass& pass) {
  const bool has_output = ops::is_given(pass.out.x);
  norm_.forward(pass, pass.in.x, has_output ? pass.out.x : pass.tensors[kSpare]);
  if (has_output) drop(pass, pass.out.x);
}

void EmbeddingNorm::backward(const Pass& pass) {
  drop(pass, pass.dout.x);
  norm_.backward(pass, {.dy = pass.dout.x, .sum = pass.in.x, .dsum = pass.din.x});
}

}  // namespace lockstep::nn
