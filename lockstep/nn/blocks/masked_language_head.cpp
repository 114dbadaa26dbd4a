#include "lockstep/nn/blocks/masked_language_head.h"

#include <utility>

#include "lockstep/nn/blocks/language_head.h"

namespace lockstep::nn {

namespace {

// The same group, each of whose ranks has all tokens.
TensorGroup with_all_tokens(TensorGroup group) {
  group.divides_tokens = false;
  return group;
}
NormOptions with_all_tokens(NormOptions norm) {
  norm.tensor = with_all_tokens(norm.tensor);
  return norm;
}
ClassifierOptions with_all_tokens(ClassifierOptions classifier) {
  classifier.tensor = with_all_tokens(classifier.tensor);
  return classifier;
}

}  // namespace

MaskedLanguageHead::MaskedLanguageHead(std::string name, const LinearOptions& dense,
                                       const NormOptions& norm, const ClassifierOptions& classifier)
    : name_(std::move(name)),
      stream_(norm.tensor),
      next_{.parameter = 0, .tensor = kTensors},
      dense_(next_, "dense", dense),
      norm_(next_, "norm", with_all_tokens(norm)),
      classifier_(next_, "logits", with_all_tokens(classifier)) {}

BlockSpec MaskedLanguageHead::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const std::int64_t tokens = setup.shape.tokens();
  const Shape stream = {tokens, dense_.out()};
  declaration.activation("active", stream, Life::kKept);
  declaration.activation("derivative", stream, Life::kBackward);
  declaration.activation("normed", stream, Life::kKept);
  declaration.activation("all", stream_.divides_tokens ? stream : Shape{0}, Life::kKept);
  if (stream_.divides_tokens) {
    declaration.gathers(static_cast<std::int64_t>(stream.elements()), setup.dtype, stream_);
  }
  dense_.declare(declaration, tokens, false);
  norm_.declare(declaration, tokens);
  classifier_.declare(declaration);
  return declaration.take();
}

Tensor MaskedLanguageHead::input(const Pass& pass) const {
  if (!stream_.divides_tokens) return pass.in.x;
  const Tensor& all = pass.tensors[kAllTokens];
  pass.tensor->gather_rows(pass.ops, pass.in.x, all);
  return all;
}

void MaskedLanguageHead::transform(const Pass& pass, const Tensor& x) const {
  dense_.forward(pass, x, ops::Activation::kGeluErf, pass.tensors[kActive],
                 pass.tensors[kDerivative]);
  norm_.forward(pass, pass.tensors[kActive], pass.tensors[kNormed]);
}

void MaskedLanguageHead::forward(const Pass& pass) {
  const Tensor targets = targets_of(pass, name_);
  if (pass.training) return;
  transform(pass, input(pass));
  classifier_.forward(pass, targets, pass.tensors[kNormed]);
}

void MaskedLanguageHead::backward(const Pass& pass) {
  const Tensor& normed = pass.tensors[kNormed];
  const Tensor x = input(pass);
  transform(pass, x);
  classifier_.backward(pass, targets_of(pass, name_), normed);
  norm_.backward(pass, {.dy = normed, .sum = pass.tensors[kActive], .dsum = normed});
  const Tensor& dz = normed;
  pass.ops.run(ops::Multiply{.a = normed, .b = pass.tensors[kDerivative], .y = dz});
  if (!stream_.divides_tokens) {
    return dense_.backward(pass, {.dy = dz, .x = x, .dx = pass.din.x});
  }
  dense_.backward(pass, {.dy = dz, .x = x, .dx = x});
  const Extent own = stream_tokens(pass.setup.shape, Side::kTarget, stream_);
  pass.ops.run(ops::Cast{.from = x.slice(own.first, own.count), .to = pass.din.x});
}

}  // namespace lockstep::nn
