#include "lockstep/nn/parts/head_exchange.h"

#include <fmt/format.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::nn {

void check_context_heads(const Setup& setup, std::int64_t heads, std::int64_t kv_heads) {
  if (!HeadExchangePart::is_used(setup)) return;
  const auto fits = [&](std::int64_t ranks) { return heads % ranks == 0 && kv_heads % ranks == 0; };
  if (fits(setup.context.size)) return;
  std::vector<std::int64_t> possible;
  for (std::int64_t ranks = 1; ranks <= kv_heads; ++ranks) {
    if (fits(ranks)) possible.push_back(ranks);
  }
  fail(ErrorCode::kInvalidArgument,
       "parallel.context = {} with parallel.context_attention = \"heads\" divides {} heads and {} "
       "key and value heads evenly, which is not possible; take parallel.context = {}, or "
       "parallel.context_attention = \"ring\"",
       setup.context.size, heads, kv_heads, fmt::join(possible, ", "));
}

TokenRows HeadExchangePart::rows(const Setup& setup, std::span<const std::int64_t> segments) const {
  return {.batch = setup.shape.batch,
          .tokens = sequence_of(setup.shape, options_.side),
          .segments = segments};
}

Shape HeadExchangePart::of_tokens(const Setup& setup, std::int64_t width) const {
  return {tokens_of(setup.shape, options_.side), width};
}

Shape HeadExchangePart::of_heads(const Setup& setup, std::int64_t width) const {
  const int ranks = setup.context.size;
  return {tokens_of(setup.shape, options_.side) * ranks, width / ranks};
}

void HeadExchangePart::declare(Declaration& declaration) const {
  const Setup& setup = declaration.setup();
  const bool used = is_used(setup);
  const Shape none{0};
  const Shape workspace = used ? of_tokens(setup, packed_width()) : none;
  declaration.activation(named("attended_heads"),
                         used ? of_heads(setup, options_.query_width) : none, Life::kKept);
  declaration.activation(named("forward_rows"), workspace, Life::kForward);
  declaration.activation(named("forward_blocks"), workspace, Life::kForward);
  declaration.activation(named("backward_rows"), workspace, Life::kBackward);
  declaration.activation(named("backward_blocks"), workspace, Life::kBackward);
  if (!used) return;
  const auto ranks = static_cast<std::uint64_t>(setup.context.size);
  const std::uint64_t bytes = of_tokens(setup, packed_width() + options_.query_width).elements() *
                              size_of(setup.dtype) / ranks * (ranks - 1);
  declaration.sends_in_forward(bytes);
  declaration.sends_in_backward(bytes);
}

Tensor HeadExchangePart::packed_tokens(const Pass& pass) const {
  return tensor(pass, kForwardRows);
}

void HeadExchangePart::packed_to_heads(const Pass& pass, const Tensor& packed_heads) const {
  const auto segments = packed_segments();
  const Tensor& packed = tensor(pass, kForwardRows);
  pass.context->to_heads(pass.ops, rows(pass.setup, segments), packed, packed_heads,
                         tensor(pass, kForwardBlocks), packed);
}

void HeadExchangePart::attended_to_tokens(const Pass& pass, const Tensor& attended) const {
  pass.context->to_tokens(pass.ops, rows(pass.setup, {&options_.query_width, 1}),
                          attended_heads(pass), attended, tensor(pass, kForwardBlocks),
                          tensor(pass, kForwardRows));
}

Tensor HeadExchangePart::dattended_to_heads(const Pass& pass, const Tensor& dattended) const {
  const Tensor& blocks = tensor(pass, kBackwardBlocks);
  const Tensor dheads = reused(blocks, of_heads(pass.setup, options_.query_width));
  pass.context->to_heads(pass.ops, rows(pass.setup, {&options_.query_width, 1}), dattended, dheads,
                         blocks, tensor(pass, kBackwardRows));
  return dheads;
}

Tensor HeadExchangePart::dpacked_heads(const Pass& pass) const {
  return reused(tensor(pass, kBackwardRows), of_heads(pass.setup, packed_width()));
}

void HeadExchangePart::dpacked_to_tokens(const Pass& pass, const Tensor& dpacked) const {
  const auto segments = packed_segments();
  pass.context->to_tokens(pass.ops, rows(pass.setup, segments), dpacked_heads(pass), dpacked,
                          tensor(pass, kBackwardBlocks), tensor(pass, kBackwardRows));
}

}  // namespace lockstep::nn
