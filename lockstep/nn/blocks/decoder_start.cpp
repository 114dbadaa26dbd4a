#include "lockstep/nn/blocks/decoder_start.h"

#include <utility>

namespace lockstep::nn {

DecoderStart::DecoderStart(std::string name, const EmbeddingOptions& embedding,
                           const NormOptions& norm)
    : name_(std::move(name)),
      options_(embedding),
      next_{.parameter = 0, .tensor = kTensors},
      norm_(next_, "encoder_norm", norm),
      tables_(next_, "", name_, embedding) {}

Shape DecoderStart::output(const Setup& setup) const {
  return {setup.shape.tokens(), options_.hidden};
}

Shape DecoderStart::memory(const Setup& setup) const {
  return {setup.shape.source_tokens(), options_.hidden};
}

BlockSpec DecoderStart::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const bool full = setup.recompute == Recompute::kFull;
  // Where the norm's result goes when it is made again for its statistics alone.
  declaration.activation("spare", full ? memory(setup) : Shape{0}, Life::kForward);
  norm_.declare(declaration, setup.shape.source_tokens());
  tables_.declare(declaration);
  return declaration.take();
}

void DecoderStart::forward(const Pass& pass) {
  const bool has_output = ops::is_given(pass.out.x);
  norm_.forward(pass, pass.in.x, has_output ? pass.out.memory : pass.tensors[kSpare]);
  if (has_output) tables_.forward(pass, pass.out.x);
}

void DecoderStart::backward(const Pass& pass) {
  tables_.backward(pass, pass.dout.x);
  norm_.backward(pass, {.dy = pass.dout.memory, .sum = pass.in.x, .dsum = pass.din.x});
}

}  // namespace lockstep::nn
