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
  return {stream_tokens(setup.shape, Side::kTarget, options_.tensor).count, options_.hidden};
}

Shape DecoderStart::memory(const Setup& setup) const {
  return {setup.shape.source_tokens(), options_.hidden};
}

BlockSpec DecoderStart::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const bool full = setup.recompute == Recompute::kFull;
  // Where the norm's result goes when it is made again for its statistics alone.
  const std::int64_t own_source = own_memory(setup).count;
  declaration.activation("spare", full ? Shape{own_source, options_.hidden} : Shape{0},
                         Life::kForward);
  norm_.declare(declaration, own_source);
  if (options_.tensor.divides_tokens) {
    declaration.gathers(setup.shape.source_tokens() * options_.hidden, setup.dtype,
                        options_.tensor);
  }
  tables_.declare(declaration);
  return declaration.take();
}

Extent DecoderStart::own_memory(const Setup& setup) const {
  return stream_tokens(setup.shape, Side::kSource, options_.tensor);
}

void DecoderStart::forward(const Pass& pass) {
  if (!ops::is_given(pass.out.x)) {
    return norm_.forward(pass, pass.in.x, pass.tensors[kSpare]);
  }
  const Extent own = own_memory(pass.setup);
  const Tensor mine = pass.out.memory.slice(own.first, own.count);
  norm_.forward(pass, pass.in.x, mine);
  if (options_.tensor.divides_tokens) {
    pass.tensor->gather_rows(pass.ops, mine, pass.out.memory);
  }
  tables_.forward(pass, pass.out.x);
}

void DecoderStart::backward(const Pass& pass) {
  tables_.backward(pass, pass.dout.x);
  const Extent own = own_memory(pass.setup);
  norm_.backward(
      pass,
      {.dy = pass.dout.memory.slice(own.first, own.count), .sum = pass.in.x, .dsum = pass.din.x});
}

}  // namespace lockstep::nn
