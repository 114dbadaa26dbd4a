#include "lockstep/nn/blocks/masked_language_head.h"

#include <utility>

#include "lockstep/nn/blocks/language_head.h"

namespace lockstep::nn {

MaskedLanguageHead::MaskedLanguageHead(std::string name, const LinearOptions& dense,
                                       const NormOptions& norm, const ClassifierOptions& classifier)
    : name_(std::move(name)),
      next_{.parameter = 0, .tensor = kTensors},
      dense_(next_, "dense", dense),
      norm_(next_, "norm", norm),
      classifier_(next_, "logits", classifier) {}

BlockSpec MaskedLanguageHead::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const std::int64_t tokens = setup.shape.tokens();
  const Shape stream = {tokens, dense_.out()};
  declaration.activation("active", stream, Life::kKept);
  declaration.activation("derivative", stream, Life::kBackward);
  declaration.activation("normed", stream, Life::kKept);
  dense_.declare(declaration, tokens, false);
  norm_.declare(declaration, tokens);
  classifier_.declare(declaration);
  return declaration.take();
}

void MaskedLanguageHead::transform(const Pass& pass) const {
  dense_.forward(pass, pass.in.x, ops::Activation::kGeluErf, pass.tensors[kActive],
                 pass.tensors[kDerivative]);
  norm_.forward(pass, pass.tensors[kActive], pass.tensors[kNormed]);
}

void MaskedLanguageHead::forward(const Pass& pass) {
  const Tensor targets = targets_of(pass, name_);
  if (pass.training) return;
  transform(pass);
  classifier_.forward(pass, targets, pass.tensors[kNormed]);
}

void MaskedLanguageHead::backward(const Pass& pass) {
  const Tensor& normed = pass.tensors[kNormed];
  transform(pass);
  classifier_.backward(pass, targets_of(pass, name_), normed);
  norm_.backward(pass, {.dy = normed, .sum = pass.tensors[kActive], .dsum = normed});
  const Tensor& dz = normed;
  pass.ops.run(ops::Multiply{.a = normed, .b = pass.tensors[kDerivative], .y = dz});
  dense_.backward(pass, {.dy = dz, .x = pass.in.x, .dx = pass.din.x});
}

}  // namespace lockstep::nn
