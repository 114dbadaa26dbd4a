#include "lockstep/nn/parts/cross_attention.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::nn {

CrossAttentionPart::CrossAttentionPart(Place& next, const std::string& name,
                                       const AttentionOptions& options)
    : Part(next, name, 0, kTensors),
      options_(options),
      query_(next, name + ".query",
             {.in = options.hidden,
              .out = options.head_size() * options.heads,
              .bias = options.biases,
              .stddev = options.stddev,
              .divided = Divided::kOutputs,
              .tensor = options.tensor}),
      key_value_(
          next, name + ".key_value",
          {.in = options.hidden,
           .out = 2 * options.head_size() * options.heads,
           .bias = options.biases,
           .stddev = options.stddev,
           .divided = Divided::kOutputs,
           .segments = {options.head_size() * options.heads, options.head_size() * options.heads},
           .tensor = {.size = options.tensor.size, .rank = options.tensor.rank}}),
      projection_(next, name + ".projection",
                  {.in = options.head_size() * options.heads,
                   .out = options.hidden,
                   .bias = options.biases,
                   .stddev = options.projection_stddev,
                   .divided = Divided::kInputs,
                   .tensor = options.tensor}) {}

ops::AttentionShape CrossAttentionPart::shape(const Setup& setup) const {
  return {.batch = setup.shape.batch,
          .queries = setup.shape.sequence * ranks(setup),
          .keys = setup.shape.source_sequence * ranks(setup),
          .heads = options_.own_heads() / ranks(setup),
          .kv_heads = options_.own_heads() / ranks(setup),
          .head_size = options_.head_size(),
          .causal = false,
          .dtype = setup.dtype};
}

ops::Dropout CrossAttentionPart::dropout(const Pass& pass) const {
  return dropout_of(pass, options_, named("probabilities"), shape(pass.setup));
}

void CrossAttentionPart::declare(Declaration& declaration) const {
  const Setup& setup = declaration.setup();
  if (setup.context.size > ranks(setup)) {
    fail(ErrorCode::kUnsupported,
         "attention of a decoder to its encoder has no ring; take parallel.context_attention = "
         "\"heads\"");
  }
  check_context_heads(setup, options_.own_heads(), options_.own_heads());
  const BatchShape& batch = setup.shape;
  const std::int64_t width = options_.query_width();
  const std::int64_t by = ranks(setup);
  const ops::AttentionShape attention = shape(setup);
  declaration.attention(attention);
  const Shape queries{batch.tokens() * by, width / by};
  const Shape keys_values{batch.source_tokens() * by, 2 * width / by};
  declaration.activation(named("queries"), queries, Life::kKept);
  declaration.activation(named("keys_values"), keys_values, Life::kKept);
  declaration.activation(named("attended"), {batch.tokens(), width}, Life::kKept);
  declaration.statistic(named("log_sum"), {attention.batch, attention.heads, attention.queries},
                        Life::kKept);
  declaration.activation(named("dqueries"), {batch.tokens(), width}, Life::kBackward);
  declaration.activation(named("dkeys_values"), {batch.source_tokens(), 2 * width},
                         Life::kBackward);
  const std::int64_t given =
      stream_tokens(batch, Side::kTarget, options_.tensor).count * options_.hidden;
  const bool is_wide = batch.tokens() * width > given;
  declaration.activation(named("dattended"), is_wide ? Shape{batch.tokens(), width} : Shape{0},
                         Life::kBackward);
  const auto elements =
      static_cast<std::int64_t>(std::max(queries.elements(), keys_values.elements()));
  const Shape workspace{by > 1 ? elements : 0};
  declaration.activation(named("attended_heads"), by > 1 ? queries : Shape{0}, Life::kKept);
  declaration.activation(named("forward_rows"), workspace, Life::kForward);
  declaration.activation(named("forward_blocks"), workspace, Life::kForward);
  declaration.activation(named("backward_rows"), workspace, Life::kBackward);
  declaration.activation(named("backward_blocks"), workspace, Life::kBackward);
  query_.declare(declaration, batch.tokens());
  key_value_.declare(declaration, batch.source_tokens());
  projection_.declare(declaration, batch.tokens());
  if (by == 1) return;
  const std::uint64_t bytes = (2 * queries.elements() + keys_values.elements()) *
                              size_of(setup.dtype) / static_cast<std::uint64_t>(by) *
                              static_cast<std::uint64_t>(by - 1);
  declaration.sends_in_forward(bytes);
  declaration.sends_in_backward(bytes);
}

void CrossAttentionPart::make_heads(const Pass& pass, const LinearPart& layer, const Tensor& x,
                                    Side side, std::span<const std::int64_t> segments,
                                    const Tensor& heads) const {
  if (ranks(pass.setup) == 1) return layer.forward(pass, x, heads);
  const BatchShape& batch = pass.setup.shape;
  const Tensor rows = reused(tensor(pass, kForwardRows), {tokens_of(batch, side), layer.out()});
  layer.forward(pass, x, rows);
  pass.context->to_heads(
      pass.ops, {.batch = batch.batch, .tokens = sequence_of(batch, side), .segments = segments},
      rows, heads, tensor(pass, kForwardBlocks), rows);
}

void CrossAttentionPart::return_to_tokens(const Pass& pass, Side side,
                                          std::span<const std::int64_t> segments,
                                          const Tensor& rows) const {
  const std::int64_t by = ranks(pass.setup);
  if (by == 1) return;
  const BatchShape& batch = pass.setup.shape;
  const Shape& shape = rows.shape();
  pass.context->to_tokens(
      pass.ops, {.batch = batch.batch, .tokens = sequence_of(batch, side), .segments = segments},
      rows.reshaped({shape[0] * by, shape[1] / by}), rows, tensor(pass, kBackwardBlocks),
      tensor(pass, kBackwardRows));
}

void CrossAttentionPart::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  const std::int64_t width = options_.query_width();
  const std::int64_t by = ranks(pass.setup);
  const std::int64_t segments[] = {width, width};
  const Tensor& keys_values = tensor(pass, kKeysValues);
  const Tensor& attended = tensor(pass, kAttended);
  make_heads(pass, query_, x, Side::kTarget, {segments, 1}, tensor(pass, kQueries));
  make_heads(pass, key_value_, pass.in.memory, Side::kSource, segments, keys_values);
  pass.ops.run(ops::Attention{.shape = shape(pass.setup),
                              .scale = options_.scale(),
                              .q = {tensor(pass, kQueries), 0},
                              .k = {keys_values, 0},
                              .v = {keys_values, width / by},
                              .key_mask = pass.batch.source_mask,
                              .dropout = dropout(pass),
                              .out = by > 1 ? tensor(pass, kAttendedHeads) : attended,
                              .log_sum = tensor(pass, kLogSum),
                              .probabilities = {}});
  if (by > 1) {
    const BatchShape& batch = pass.setup.shape;
    pass.context->to_tokens(
        pass.ops, {.batch = batch.batch, .tokens = batch.sequence, .segments = {segments, 1}},
        tensor(pass, kAttendedHeads), attended, tensor(pass, kForwardBlocks),
        tensor(pass, kForwardRows));
  }
  projection_.forward(pass, attended, y);
}

void CrossAttentionPart::backward(const Pass& pass, const Tensor& dy, const Tensor& x,
                                  const Tensor& workspace, const Tensor& dx) const {
  const std::int64_t width = options_.query_width();
  const std::int64_t by = ranks(pass.setup);
  const std::int64_t segments[] = {width, width};
  const Tensor& keys_values = tensor(pass, kKeysValues);
  const Tensor& dqueries = tensor(pass, kDQueries);
  const Tensor& dkeys_values = tensor(pass, kDKeysValues);
  const Tensor& attended = tensor(pass, kAttended);
  const Tensor& wide = tensor(pass, kDAttended);
  Tensor dattended = ops::is_given(wide) ? wide : reused(workspace, attended.shape());
  projection_.backward(pass, {.dy = dy, .x = attended, .dx = dattended});
  const Tensor& queries = tensor(pass, kQueries);
  if (by > 1) {
    const BatchShape& batch = pass.setup.shape;
    const Tensor& blocks = tensor(pass, kBackwardBlocks);
    const Tensor dheads = reused(blocks, queries.shape());
    pass.context->to_heads(
        pass.ops, {.batch = batch.batch, .tokens = batch.sequence, .segments = {segments, 1}},
        dattended, dheads, blocks, tensor(pass, kBackwardRows));
    dattended = dheads;
  }
  const Tensor dkeys_heads = dkeys_values.reshaped(keys_values.shape());
  pass.ops.run(ops::AttentionBackward{.shape = shape(pass.setup),
                                      .scale = options_.scale(),
                                      .q = {queries, 0},
                                      .k = {keys_values, 0},
                                      .v = {keys_values, width / by},
                                      .key_mask = pass.batch.source_mask,
                                      .dropout = dropout(pass),
                                      .out = by > 1 ? tensor(pass, kAttendedHeads) : attended,
                                      .log_sum = tensor(pass, kLogSum),
                                      .dout = dattended,
                                      .dq = {dqueries.reshaped(queries.shape()), 0},
                                      .dk = {dkeys_heads, 0},
                                      .dv = {dkeys_heads, width / by}});
  return_to_tokens(pass, Side::kTarget, {segments, 1}, dqueries);
  return_to_tokens(pass, Side::kSource, segments, dkeys_values);
  key_value_.backward(
      pass, {.dy = dkeys_values, .x = pass.in.memory, .dx = pass.din.memory, .accumulate = true});
  query_.backward(pass, {.dy = dqueries, .x = x, .dx = dx});
}

}  // namespace lockstep::nn
