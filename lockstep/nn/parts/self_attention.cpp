#include "lockstep/nn/parts/self_attention.h"

#include <algorithm>
#include <cmath>

namespace lockstep::nn {

SelfAttentionPart::SelfAttentionPart(Place& next, const std::string& name,
                                     const AttentionOptions& options)
    : Part(next, name, 0, kTensors),
      options_(options),
      qkv_(next, name + ".qkv",
           {.in = options.hidden,
            .out = options.head_size() * (options.heads + 2 * options.kv_heads),
            .bias = options.biases,
            .stddev = options.stddev,
            .quantized = true,
            .divided = Divided::kOutputs,
            .segments = {options.hidden, options.head_size() * options.kv_heads,
                         options.head_size() * options.kv_heads},
            .tensor = options.tensor}),
      projection_(next, name + ".projection",
                  {.in = options.hidden,
                   .out = options.hidden,
                   .bias = options.biases,
                   .stddev = options.projection_stddev,
                   .quantized = true,
                   .divided = Divided::kInputs,
                   .tensor = options.tensor}) {}

ops::AttentionShape SelfAttentionPart::shape(const Setup& setup) const {
  const std::int64_t sequence = sequence_of(setup.shape, options_.side);
  return {.batch = setup.shape.batch,
          .queries = sequence,
          .keys = sequence,
          .heads = options_.own_heads(),
          .kv_heads = options_.own_kv_heads(),
          .head_size = options_.head_size(),
          .causal = options_.causal,
          .dtype = setup.dtype};
}

ops::Dropout SelfAttentionPart::dropout(const Pass& pass) const {
  const std::int64_t sequence = sequence_of(pass.setup.shape, options_.side);
  return dropout_of(pass, options_, named("probabilities"), sequence, sequence);
}

void SelfAttentionPart::declare(Declaration& declaration, std::int64_t spent_width) const {
  const Setup& setup = declaration.setup();
  const std::int64_t rows = tokens_of(setup.shape, options_.side);
  const ops::AttentionShape attention = shape(setup);
  declaration.attention(attention);
  declaration.activation(named("packed"), {rows, packed_width()}, Life::kKept);
  declaration.activation(named("attended"), {rows, options_.query_width()}, Life::kKept);
  declaration.statistic(named("log_sum"), {attention.batch, attention.heads, attention.queries},
                        Life::kKept);
  const bool fits = spent_width >= packed_width();
  declaration.activation(named("dpacked"), fits ? Shape{0} : Shape{rows, packed_width()},
                         Life::kBackward);
  qkv_.declare(declaration, rows);
  projection_.declare(declaration, rows);
}

void SelfAttentionPart::rotate(const Pass& pass, const Tensor& packed, bool backward) const {
  rotate(pass, queries(packed), options_.own_heads(), 0, backward);
  rotate(pass, keys(packed), options_.own_kv_heads(), 0, backward);
}

void SelfAttentionPart::rotate(const Pass& pass, const ops::Heads& x, std::int64_t heads,
                               std::int64_t position, bool backward) const {
  if (!options_.rotary) return;
  pass.ops.run(ops::Rotary{.x = x,
                           .heads = heads,
                           .head_size = options_.head_size(),
                           .sequence = sequence_of(pass.setup.shape, options_.side),
                           .first_position = position,
                           .theta = options_.theta,
                           .backward = backward});
}

void SelfAttentionPart::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  const Tensor& packed = tensor(pass, kPacked);
  qkv_.forward(pass, x, packed);
  rotate(pass, packed, false);
  pass.ops.run(ops::Attention{.shape = shape(pass.setup),
                              .scale = attention_scale(options_.head_size()),
                              .q = queries(packed),
                              .k = keys(packed),
                              .v = values(packed),
                              .key_mask = mask_of(pass.batch, options_.side),
                              .dropout = dropout(pass),
                              .out = tensor(pass, kAttended),
                              .log_sum = tensor(pass, kLogSum),
                              .probabilities = {}});
  projection_.forward(pass, tensor(pass, kAttended), y);
}

TensorSpec SelfAttentionPart::declare_cache(const DecodeSetup& setup) const {
  return {.name = named("cache"),
          .dtype = setup.dtype,
          .shape = {setup.batch, setup.positions, 2 * options_.kv_width()}};
}

ops::AttentionShape SelfAttentionPart::decode_shape(std::int64_t rows, std::int64_t keys,
                                                    DType dtype) const {
  return {.batch = 1,
          .queries = rows,
          .keys = keys,
          .heads = options_.own_heads(),
          .kv_heads = options_.own_kv_heads(),
          .head_size = options_.head_size(),
          .causal = true,
          .dtype = dtype};
}

std::size_t SelfAttentionPart::decode_scratch(const DecodeSetup& setup, const Ops& ops) const {
  if (setup.steps) {
    ops::AttentionShape shape = decode_shape(1, setup.positions, setup.dtype);
    shape.batch = setup.batch;
    return ops.decode_attention_scratch(shape);
  }
  const auto product = [&](std::int64_t out) {
    return ops.scratch(
        LinearShape{.rows = setup.rows, .in = options_.hidden, .out = out, .dtype = setup.dtype});
  };
  return std::max({product(options_.query_width()), product(2 * options_.kv_width()),
                   ops.scratch(decode_shape(setup.rows, setup.positions, setup.dtype))});
}

// Keys and values go straight to their place in the cache, and queries to where all three are
// packed in training, which is wide enough.
void SelfAttentionPart::decode(const DecodePass& at, const Tensor& cache, const Tensor& x,
                               const Tensor& y) const {
  const Pass& pass = at.pass;
  if (at.steps()) {
    qkv_.forward(pass, x, tensor(pass, kPacked));
    pass.ops.run(ops::DecodeAttention{.heads = options_.own_heads(),
                                      .kv_heads = options_.own_kv_heads(),
                                      .head_size = options_.head_size(),
                                      .scale = attention_scale(options_.head_size()),
                                      .rotary = options_.rotary,
                                      .theta = options_.theta,
                                      .lengths = at.lengths,
                                      .packed = tensor(pass, kPacked),
                                      .cache = cache,
                                      .out = tensor(pass, kAttended)});
    projection_.forward(pass, tensor(pass, kAttended), y);
    return;
  }
  const std::int64_t rows = x.shape()[0];
  const std::int64_t keys = at.position + rows;
  const Tensor q = reused(tensor(pass, kPacked), {rows, options_.query_width()});
  const Tensor added = cache.slice(at.position, rows);
  const Tensor seen = cache.slice(0, keys);
  qkv_.forward_some(pass, x, 0, q);
  qkv_.forward_some(pass, x, options_.query_width(), added);
  rotate(pass, {q, 0}, options_.own_heads(), at.position, false);
  rotate(pass, {added, 0}, options_.own_kv_heads(), at.position, false);
  pass.ops.run(ops::Attention{.shape = decode_shape(rows, keys, x.dtype()),
                              .scale = attention_scale(options_.head_size()),
                              .q = {q, 0},
                              .k = {seen, 0},
                              .v = {seen, options_.kv_width()},
                              .key_mask = {},
                              .dropout = {},
                              .out = tensor(pass, kAttended),
                              .log_sum = tensor(pass, kLogSum),
                              .probabilities = {}});
  projection_.forward(pass, tensor(pass, kAttended), y);
}

Tensor SelfAttentionPart::backward(const Pass& pass, const Tensor& dy, const Tensor& workspace,
                                   const Tensor& spent) const {
  const Tensor& packed = tensor(pass, kPacked);
  const Tensor& own = tensor(pass, kDPacked);
  const Tensor dpacked = ops::is_given(own) ? own : reused(spent, packed.shape());
  const Tensor& attended = tensor(pass, kAttended);
  const Tensor dattended = reused(workspace, attended.shape());
  projection_.backward(pass, {.dy = dy, .x = attended, .dx = dattended});
  pass.ops.run(ops::AttentionBackward{.shape = shape(pass.setup),
                                      .scale = attention_scale(options_.head_size()),
                                      .q = queries(packed),
                                      .k = keys(packed),
                                      .v = values(packed),
                                      .key_mask = mask_of(pass.batch, options_.side),
                                      .dropout = dropout(pass),
                                      .out = attended,
                                      .log_sum = tensor(pass, kLogSum),
                                      .dout = dattended,
                                      .dq = queries(dpacked),
                                      .dk = keys(dpacked),
                                      .dv = values(dpacked)});
  rotate(pass, dpacked, true);
  return dpacked;
}

ops::Dropout dropout_of(const Pass& pass, const AttentionOptions& options, std::string_view purpose,
                        std::int64_t queries, std::int64_t keys) {
  std::string own(purpose);
  if (options.tensor.size > 1) own += "." + std::to_string(options.tensor.rank);
  return dropout_of(pass, own, options.dropout, options.own_heads() * queries * keys);
}

float attention_scale(std::int64_t head_size) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(head_size)));
}

}  // namespace lockstep::nn
