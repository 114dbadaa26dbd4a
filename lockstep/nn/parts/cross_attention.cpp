#include "lockstep/nn/parts/cross_attention.h"

namespace lockstep::nn {

CrossAttentionPart::CrossAttentionPart(Place& next, const std::string& name,
                                       const AttentionOptions& options)
    : Part(next, name, 0, kTensors),
      options_(options),
      query_(next, name + ".query",
             {.in = options.hidden,
              .out = options.hidden,
              .bias = options.biases,
              .stddev = options.stddev,
              .divided = Divided::kOutputs,
              .tensor = options.tensor}),
      key_value_(next, name + ".key_value",
                 {.in = options.hidden,
                  .out = 2 * options.hidden,
                  .bias = options.biases,
                  .stddev = options.stddev,
                  .divided = Divided::kOutputs,
                  .segments = {options.hidden, options.hidden},
                  .tensor = {.size = options.tensor.size, .rank = options.tensor.rank}}),
      projection_(next, name + ".projection",
                  {.in = options.hidden,
                   .out = options.hidden,
                   .bias = options.biases,
                   .stddev = options.projection_stddev,
                   .divided = Divided::kInputs,
                   .tensor = options.tensor}) {}

ops::AttentionShape CrossAttentionPart::shape(const Setup& setup) const {
  return {.batch = setup.shape.batch,
          .queries = setup.shape.sequence,
          .keys = setup.shape.source_sequence,
          .heads = options_.own_heads(),
          .kv_heads = options_.own_heads(),
          .head_size = options_.head_size(),
          .causal = false,
          .dtype = setup.dtype};
}

ops::Dropout CrossAttentionPart::dropout(const Pass& pass) const {
  const BatchShape& shape = pass.setup.shape;
  return dropout_of(pass, options_, named("probabilities"), shape.sequence, shape.source_sequence);
}

void CrossAttentionPart::declare(Declaration& declaration) const {
  const BatchShape& batch = declaration.setup().shape;
  const std::int64_t width = options_.query_width();
  const ops::AttentionShape attention = shape(declaration.setup());
  declaration.attention(attention);
  declaration.activation(named("queries"), {batch.tokens(), width}, Life::kKept);
  declaration.activation(named("keys_values"), {batch.source_tokens(), 2 * width}, Life::kKept);
  declaration.activation(named("attended"), {batch.tokens(), width}, Life::kKept);
  declaration.statistic(named("log_sum"), {attention.batch, attention.heads, attention.queries},
                        Life::kKept);
  declaration.activation(named("dqueries"), {batch.tokens(), width}, Life::kBackward);
  declaration.activation(named("dkeys_values"), {batch.source_tokens(), 2 * width},
                         Life::kBackward);
  query_.declare(declaration, batch.tokens());
  key_value_.declare(declaration, batch.source_tokens());
  projection_.declare(declaration, batch.tokens());
}

void CrossAttentionPart::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  const Tensor& keys_values = tensor(pass, kKeysValues);
  query_.forward(pass, x, tensor(pass, kQueries));
  key_value_.forward(pass, pass.in.memory, keys_values);
  pass.ops.run(ops::Attention{.shape = shape(pass.setup),
                              .scale = attention_scale(options_.head_size()),
                              .q = {tensor(pass, kQueries), 0},
                              .k = {keys_values, 0},
                              .v = {keys_values, options_.query_width()},
                              .key_mask = pass.batch.source_mask,
                              .dropout = dropout(pass),
                              .out = tensor(pass, kAttended),
                              .log_sum = tensor(pass, kLogSum),
                              .probabilities = {}});
  projection_.forward(pass, tensor(pass, kAttended), y);
}

void CrossAttentionPart::backward(const Pass& pass, const Tensor& dy, const Tensor& x,
                                  const Tensor& workspace, const Tensor& dx) const {
  const Tensor& keys_values = tensor(pass, kKeysValues);
  const Tensor& dqueries = tensor(pass, kDQueries);
  const Tensor& dkeys_values = tensor(pass, kDKeysValues);
  const Tensor& attended = tensor(pass, kAttended);
  const Tensor dattended = reused(workspace, attended.shape());
  projection_.backward(pass, {.dy = dy, .x = attended, .dx = dattended});
  pass.ops.run(ops::AttentionBackward{.shape = shape(pass.setup),
                                      .scale = attention_scale(options_.head_size()),
                                      .q = {tensor(pass, kQueries), 0},
                                      .k = {keys_values, 0},
                                      .v = {keys_values, options_.query_width()},
                                      .key_mask = pass.batch.source_mask,
                                      .dropout = dropout(pass),
                                      .out = attended,
                                      .log_sum = tensor(pass, kLogSum),
                                      .dout = dattended,
                                      .dq = {dqueries, 0},
                                      .dk = {dkeys_values, 0},
                                      .dv = {dkeys_values, options_.query_width()}});
  key_value_.backward(
      pass, {.dy = dkeys_values, .x = pass.in.memory, .dx = pass.din.memory, .accumulate = true});
  query_.backward(pass, {.dy = dqueries, .x = x, .dx = dx});
}

}  // namespace lockstep::nn
