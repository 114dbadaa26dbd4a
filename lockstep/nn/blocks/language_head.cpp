#include "lockstep/nn/blocks/language_head.h"

#include <utility>

#include "lockstep/nn/parts/expert_counts.h"

namespace lockstep::nn {

Tensor targets_of(const Pass& pass, std::string_view block) {
  const Tensor& targets = pass.batch.targets;
  const bool may_be_absent = !pass.training && ops::is_given(pass.logits);
  if (may_be_absent && !ops::is_given(targets)) return {};
  const BatchShape& shape = pass.setup.shape;
  return checked(targets, "targets", block, DType::kI32, {shape.batch, shape.sequence})
      .reshaped({shape.tokens()});
}

LanguageHead::LanguageHead(std::string name, const NormOptions& norm,
                           const ClassifierOptions& classifier, std::int64_t counted_experts)
    : name_(std::move(name)),
      hidden_(norm.width),
      tensor_(norm.tensor),
      counted_experts_(counted_experts),
      next_{.parameter = 0, .tensor = kTensors},
      norm_(next_, "norm", norm),
      classifier_(next_, "logits", classifier) {}

BlockSpec LanguageHead::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  const std::int64_t own_tokens = stream_tokens(setup.shape, Side::kTarget, tensor_).count;
  declaration.activation("normed", {own_tokens, hidden_}, Life::kKept);
  norm_.declare(declaration, own_tokens);
  classifier_.declare(declaration);
  if (counted_experts_ > 0 && setup.context.size > 1) {
    const auto bytes = static_cast<std::uint64_t>(counted_experts_ + 1) * sizeof(std::int32_t);
    const auto ranks = static_cast<std::uint64_t>(setup.context.size);
    declaration.sends_in_backward(2 * bytes * (ranks - 1) / ranks);
  }
  return declaration.take();
}

void LanguageHead::forward(const Pass& pass) {
  const Tensor targets = targets_of(pass, name_);
  if (pass.training) return;
  norm_.forward(pass, pass.in.x, pass.tensors[kNormed]);
  classifier_.forward(pass, targets, pass.tensors[kNormed]);
}

void LanguageHead::backward(const Pass& pass) {
  const Tensor& normed = pass.tensors[kNormed];
  norm_.forward(pass, pass.in.x, normed);
  classifier_.backward(pass, targets_of(pass, name_), normed);
  norm_.backward(pass, {.dy = normed, .sum = pass.in.x, .dsum = pass.din.x});
  if (counted_experts_ > 0) hand_back_counts(pass);
}

void LanguageHead::hand_back_counts(const Pass& pass) const {
  const Tensor counts = counts_in(pass.din.memory, counted_experts_);
  pass.ops.in_order([&] { copy(counts, counts_in(pass.in.memory, counted_experts_)); });
  const Tensor& targets = pass.batch.targets;
  pass.ops.run(ops::CountTargets{
      .targets = targets.reshaped({static_cast<std::int64_t>(targets.elements())}),
      .count = counts.slice(counted_experts_, 1)});
  if (pass.setup.context.size > 1) pass.context->sum(pass.ops, counts);
}

// Of one row, however many of a sequence are read.
DecodeSpec LanguageHead::decode_spec(const DecodeSetup& setup, const Ops& ops) const {
  DecodeSetup last = setup;
  last.rows = 1;
  DecodeSpec result = forward_of(spec(last.piece(), ops));
  result.classes = classifier_.classes();
  return result;
}

void LanguageHead::decode(const DecodePass& at) const {
  const Pass& pass = at.pass;
  const std::int64_t last = pass.in.x.shape()[0] - 1;
  const Tensor x = at.steps() ? pass.in.x : pass.in.x.slice(last, 1);
  norm_.forward(pass, x, pass.tensors[kNormed]);
  classifier_.forward(pass, {}, pass.tensors[kNormed]);
}

}  // namespace lockstep::nn
