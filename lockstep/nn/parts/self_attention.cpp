#include "lockstep/nn/parts/self_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::nn {

SelfAttentionPart::SelfAttentionPart(Place& next, const std::string& name,
                                     const AttentionOptions& options)
    : Part(next, name, 0, kTensors),
      options_(options),
      qkv_(
          next, name + ".qkv",
          {.in = options.hidden,
           .out = options.head_size() * (options.heads + 2 * options.kv_heads),
           .bias = options.biases || options.qkv_biases,
           .stddev = options.stddev,
           .quantized = true,
           .divided = Divided::kOutputs,
           .segments = {options.head_size() * options.heads, options.head_size() * options.kv_heads,
                        options.head_size() * options.kv_heads},
           .tensor = options.tensor}),
      norms_(options.qk_norm ? std::make_optional<QueryKeyNormPart>(next, name, options)
                             : std::nullopt),
      bias_(options.bias_table.empty()
                ? std::nullopt
                : std::make_optional<RelativeBiasPart>(next, name + ".bias", options)),
      projection_(next, name + ".projection",
                  {.in = options.head_size() * options.heads,
                   .out = options.hidden,
                   .bias = options.biases,
                   .stddev = options.projection_stddev,
                   .quantized = true,
                   .divided = Divided::kInputs,
                   .tensor = options.tensor}),
      by_heads_(next, name + ".context",
                {.query_width = options.query_width(),
                 .kv_width = options.kv_width(),
                 .side = options.side}),
      in_ring_(next, name + ".ring", options) {}

ops::AttentionShape SelfAttentionPart::shape(const Setup& setup) const {
  const int ranks = HeadExchangePart::is_used(setup) ? setup.context.size : 1;
  const std::int64_t sequence = sequence_of(setup.shape, options_.side) * ranks;
  const std::int64_t keys = setup.slice.first + sequence;
  return {.batch = setup.shape.batch,
          .queries = sequence,
          .keys = keys,
          .heads = options_.own_heads() / ranks,
          .kv_heads = options_.own_kv_heads() / ranks,
          .head_size = options_.head_size(),
          .causal = options_.causal,
          .dtype = setup.dtype,
          .window = options_.window_of(keys),
          .distances = bias_ ? options_.buckets.distances() : 0};
}

ops::Dropout SelfAttentionPart::dropout(const Pass& pass) const {
  const ops::AttentionShape attention = shape(pass.setup);
  return dropout_of(pass, options_, named("probabilities"), attention);
}

void SelfAttentionPart::declare(Declaration& declaration, std::int64_t spent_width) const {
  const Setup& setup = declaration.setup();
  check_context_heads(setup, options_.own_heads(), options_.own_kv_heads());
  if (RingAttentionPart::is_used(setup) &&
      options_.window_of(whole_sequence_of(setup, options_.side)) > 0) {
    fail(ErrorCode::kUnsupported, "attention in a ring sees all tokens, not a window of {}",
         options_.window);
  }
  if (bias_ && (RingAttentionPart::is_used(setup) || !setup.slices.empty())) {
    fail(ErrorCode::kUnsupported,
         "attention with a bias by distance has no ring and no slices of tokens; take "
         "parallel.context_attention = \"heads\", and another schedule than terapipe");
  }
  const std::int64_t rows = tokens_of(setup.shape, options_.side);
  // All tokens of some heads are as many elements as some tokens of all heads.
  const int ranks = HeadExchangePart::is_used(setup) ? setup.context.size : 1;
  ops::AttentionShape attention = shape(setup);
  if (RingAttentionPart::is_used(setup)) {
    attention.keys *= setup.context.size;
    declaration.attention_flops(attention);
  } else {
    declaration.attention(attention);
  }
  const bool sliced = !setup.slices.empty();
  const std::int64_t all_rows = setup.slice.is_whole() ? rows : setup.slice.of;
  declaration.activation(named("packed"), {all_rows * ranks, packed_width() / ranks}, Life::kKept);
  declaration.activation(named("attended"), {rows, options_.query_width()}, Life::kKept);
  declaration.statistic(named("log_sum"),
                        RingAttentionPart::is_used(setup)
                            ? in_ring_.log_sum(setup)
                            : Shape{attention.batch, attention.heads, attention.queries},
                        Life::kKept);
  const bool fits = spent_width >= packed_width();
  declaration.activation(named("dpacked"), fits ? Shape{0} : Shape{rows, packed_width()},
                         Life::kBackward);
  const std::int64_t workspace =
      stream_tokens(setup.shape, options_.side, options_.tensor).count * options_.hidden;
  const bool is_wide = rows * options_.query_width() > workspace;
  declaration.activation(named("dattended"),
                         is_wide ? Shape{rows, options_.query_width()} : Shape{0}, Life::kBackward);
  const Shape both = sliced ? Shape{all_rows, 2 * options_.kv_width()} : Shape{0};
  declaration.statistic(named("dkeys_values"), both, Life::kKept);
  declaration.activation(named("dsome_keys_values"), both, Life::kBackward);
  qkv_.declare(declaration, rows);
  if (norms_) norms_->declare(declaration, rows);
  if (bias_) bias_->declare(declaration);
  projection_.declare(declaration, rows);
  by_heads_.declare(declaration);
  in_ring_.declare(declaration);
}

void SelfAttentionPart::rotate(const Pass& pass, const Tensor& packed, bool backward) const {
  const ops::AttentionShape attention = shape(pass.setup);
  const auto rotate_rows = [&](const Tensor& rows, const Positions& positions) {
    rotate(pass, queries(rows), attention.heads, positions, backward);
    rotate(pass, keys(rows), attention.kv_heads, positions, backward);
  };
  const Setup& setup = pass.setup;
  const std::int64_t most = whole_sequence_of(setup, options_.side);
  if (!RingAttentionPart::is_used(setup)) {
    return rotate_rows(packed,
                       {.sequence = attention.queries, .first = setup.slice.first, .most = most});
  }
  const std::vector<TokenRun> runs = token_runs(setup.context, attention.queries);
  for (std::int64_t i = 0; i < attention.batch; ++i) {
    for (const TokenRun& run : runs) {
      rotate_rows(packed.slice(i * attention.queries + run.local, run.count),
                  {.sequence = run.count, .first = run.position, .most = most});
    }
  }
}

void SelfAttentionPart::rotate(const Pass& pass, const ops::Heads& x, std::int64_t heads,
                               const Positions& positions, bool backward) const {
  if (!options_.rotary) return;
  pass.ops.run(ops::Rotary{.x = x,
                           .heads = heads,
                           .head_size = options_.turned_width(),
                           .stride = options_.head_size(),
                           .sequence = positions.sequence,
                           .first_position = positions.first,
                           .theta = options_.theta,
                           .scaling = options_.scaling,
                           .slowing = options_.slowing(positions.most),
                           .amplitude = options_.amplitude(),
                           .backward = backward});
}

Tensor SelfAttentionPart::own_rows(const Pass& pass, const Tensor& all) {
  const Setup& setup = pass.setup;
  return setup.slice.is_whole() ? all : all.slice(setup.slice.first, setup.shape.sequence);
}

Tensor SelfAttentionPart::seen_rows(const Pass& pass, const Tensor& all) {
  const Setup& setup = pass.setup;
  return setup.slice.is_whole() ? all : all.slice(0, setup.slice.first + setup.shape.sequence);
}

Tensor SelfAttentionPart::seen_mask(const Pass& pass) const {
  const Tensor& mask = mask_of(pass.batch, options_.side);
  if (pass.setup.slice.is_whole() || !ops::is_given(mask)) return mask;
  const Tensor seen = seen_rows(pass, mask.reshaped({pass.setup.slice.of}));
  return seen.reshaped({1, seen.shape()[0]});
}

void SelfAttentionPart::attend(const Pass& pass, const Tensor& packed) const {
  if (RingAttentionPart::is_used(pass.setup)) {
    return in_ring_.forward(pass, packed, tensor(pass, kAttended), tensor(pass, kLogSum));
  }
  const bool by_heads = HeadExchangePart::is_used(pass.setup);
  const Tensor seen = seen_rows(pass, tensor(pass, kPacked));
  if (bias_) bias_->forward(pass);
  pass.ops.run(
      ops::Attention{.shape = shape(pass.setup),
                     .scale = options_.scale(),
                     .softcap = options_.softcap,
                     .q = queries(packed),
                     .k = keys(seen),
                     .v = values(seen),
                     .key_mask = seen_mask(pass),
                     .dropout = dropout(pass),
                     .out = by_heads ? by_heads_.attended_heads(pass) : tensor(pass, kAttended),
                     .log_sum = tensor(pass, kLogSum),
                     .probabilities = {},
                     .bias = bias_ ? bias_->bias(pass) : Tensor()});
}

void SelfAttentionPart::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  const Tensor packed = own_rows(pass, tensor(pass, kPacked));
  const bool by_heads = HeadExchangePart::is_used(pass.setup);
  const Tensor made = by_heads ? by_heads_.packed_tokens(pass) : packed;
  qkv_.forward(pass, x, made);
  if (norms_) norms_->forward(pass, made);
  if (by_heads) by_heads_.packed_to_heads(pass, packed);
  rotate(pass, packed, false);
  attend(pass, packed);
  if (by_heads) by_heads_.attended_to_tokens(pass, tensor(pass, kAttended));
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
          .dtype = dtype,
          .window = options_.window_of(keys)};
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
    if (norms_) norms_->forward(pass, tensor(pass, kPacked));
    pass.ops.run(ops::DecodeAttention{.heads = options_.own_heads(),
                                      .kv_heads = options_.own_kv_heads(),
                                      .head_size = options_.head_size(),
                                      .scale = options_.scale(),
                                      .softcap = options_.softcap,
                                      .window = options_.window_of(cache.shape()[1]),
                                      .rotary = options_.rotary,
                                      .rotary_size = options_.rotary_width,
                                      .theta = options_.theta,
                                      .scaling = options_.scaling,
                                      .slowing = options_.slowing(cache.shape()[1]),
                                      .amplitude = options_.amplitude(),
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
  if (norms_) {
    norms_->forward_queries(pass, {q, 0});
    norms_->forward_keys(pass, {added, 0});
  }
  const Positions positions{.sequence = sequence_of(pass.setup.shape, options_.side),
                            .first = at.position,
                            .most = cache.shape()[0]};
  rotate(pass, {q, 0}, options_.own_heads(), positions, false);
  rotate(pass, {added, 0}, options_.own_kv_heads(), positions, false);
  pass.ops.run(ops::Attention{.shape = decode_shape(rows, keys, x.dtype()),
                              .scale = options_.scale(),
                              .softcap = options_.softcap,
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

void SelfAttentionPart::attend_backward(const Pass& pass, const Tensor& packed,
                                        const Tensor& dattended, const Tensor& dpacked) const {
  const bool by_heads = HeadExchangePart::is_used(pass.setup);
  const Tensor& attended = by_heads ? by_heads_.attended_heads(pass) : tensor(pass, kAttended);
  const Tensor& log_sum = tensor(pass, kLogSum);
  if (RingAttentionPart::is_used(pass.setup)) {
    return in_ring_.backward(pass, {packed, attended, log_sum, dattended, dpacked});
  }
  if (!pass.setup.slice.is_whole()) return attend_slice_backward(pass, dattended, dpacked);
  pass.ops.run(ops::AttentionBackward{.shape = shape(pass.setup),
                                      .scale = options_.scale(),
                                      .softcap = options_.softcap,
                                      .q = queries(packed),
                                      .k = keys(packed),
                                      .v = values(packed),
                                      .key_mask = mask_of(pass.batch, options_.side),
                                      .dropout = dropout(pass),
                                      .out = attended,
                                      .log_sum = log_sum,
                                      .dout = dattended,
                                      .dq = queries(dpacked),
                                      .dk = keys(dpacked),
                                      .dv = values(dpacked),
                                      .bias = bias_ ? bias_->bias(pass) : Tensor(),
                                      .dbias = bias_ ? bias_->dbias(pass) : Tensor()});
  if (bias_) bias_->backward(pass);
}

// The last slice comes first and reads all keys, so the sums begin with it.
void SelfAttentionPart::attend_slice_backward(const Pass& pass, const Tensor& dattended,
                                              const Tensor& dpacked) const {
  const TokenSlice& slice = pass.setup.slice;
  const Tensor& all = tensor(pass, kPacked);
  const Tensor seen = seen_rows(pass, all);
  const Tensor more = seen_rows(pass, tensor(pass, kDSomeKeysValues));
  const Tensor sums = tensor(pass, kDKeysValues);
  pass.ops.run(ops::AttentionBackward{.shape = shape(pass.setup),
                                      .scale = options_.scale(),
                                      .softcap = options_.softcap,
                                      .q = queries(own_rows(pass, all)),
                                      .k = keys(seen),
                                      .v = values(seen),
                                      .key_mask = seen_mask(pass),
                                      .dropout = dropout(pass),
                                      .out = tensor(pass, kAttended),
                                      .log_sum = tensor(pass, kLogSum),
                                      .dout = dattended,
                                      .dq = queries(dpacked),
                                      .dk = {more, 0},
                                      .dv = {more, options_.kv_width()}});
  const bool is_last = slice.first + pass.setup.shape.sequence == slice.of;
  const std::int64_t both = 2 * options_.kv_width();
  pass.ops.run(ops::CopyColumns{.from = {more, 0},
                                .to = {seen_rows(pass, sums), 0},
                                .columns = both,
                                .accumulate = !is_last});
  pass.ops.run(ops::CopyColumns{
      .from = {own_rows(pass, sums), 0}, .to = {dpacked, options_.query_width()}, .columns = both});
}

Tensor SelfAttentionPart::backward(const Pass& pass, const Tensor& dy, const Tensor& workspace,
                                   const Tensor& spent) const {
  const Tensor packed = own_rows(pass, tensor(pass, kPacked));
  const Tensor& own = tensor(pass, kDPacked);
  const Tensor& attended = tensor(pass, kAttended);
  const Tensor dpacked =
      ops::is_given(own) ? own : reused(spent, {attended.shape()[0], packed_width()});
  const Tensor& wide = tensor(pass, kDAttended);
  const Tensor dattended = ops::is_given(wide) ? wide : reused(workspace, attended.shape());
  projection_.backward(pass, {.dy = dy, .x = attended, .dx = dattended});
  const bool by_heads = HeadExchangePart::is_used(pass.setup);
  const Tensor dout = by_heads ? by_heads_.dattended_to_heads(pass, dattended) : dattended;
  const Tensor dheads = by_heads ? by_heads_.dpacked_heads(pass) : dpacked;
  attend_backward(pass, packed, dout, dheads);
  rotate(pass, dheads, true);
  if (by_heads) by_heads_.dpacked_to_tokens(pass, dpacked);
  if (norms_) norms_->backward(pass, dpacked);
  return dpacked;
}

ops::Dropout dropout_of(const Pass& pass, const AttentionOptions& options, std::string_view purpose,
                        const ops::AttentionShape& shape) {
  std::string own(purpose);
  if (options.tensor.size > 1) own += "." + std::to_string(options.tensor.rank);
  return dropout_of(pass, own, options.dropout, shape.heads * shape.queries * shape.keys);
}

float AttentionOptions::scale() const {
  const std::int64_t width = scale_width > 0 ? scale_width : head_size();
  return static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
}

}  // namespace lockstep::nn
