#include "lockstep/nn/parts/embedding.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/ops/element.h"

namespace lockstep::nn {
namespace {

double rounded_to(DType dtype, double value) {
  return ops::with_float_type(dtype,
                              [&]<class T>(T) { return ops::to_double(ops::rounded<T>(value)); });
}

// Rows of a tensor that may be absent.
Tensor slice_of(const Tensor& tensor, const Extent& rows) {
  return ops::is_given(tensor) ? tensor.slice(rows.first, rows.count) : Tensor();
}

}  // namespace

void EmbeddingPart::check_positions(std::int64_t positions) const {
  if (options_.positions > 0 && positions > options_.positions) {
    fail(
        ErrorCode::kInvalidArgument,
        "sequences of {} tokens are longer than the {} positions that block '{}' has; take shorter "
        "ones or a model with more positions",
        positions, options_.positions, block_);
  }
}

void EmbeddingPart::declare(Declaration& declaration) const {
  check_positions(whole_sequence_of(declaration.setup(), options_.side));
  const std::int64_t vocabulary = own_tokens().count;
  const std::int64_t rows = tokens_of(declaration.setup().shape, options_.side);
  if (!options_.tied_to.empty()) {
    declaration.tied_weight(named("tokens"), vocabulary, options_.hidden, options_.tied_to);
  } else if (is_divided()) {
    declaration.weight(named("tokens"), vocabulary, options_.hidden, options_.stddev);
  } else {
    declaration.table(named("tokens"), vocabulary, options_.hidden, options_.stddev, rows);
  }
  declaration.shard(shard_of(0, {options_.vocabulary}, options_.tensor));
  declaration.read_in_forward_only();
  declaration.weight(named("positions"), options_.positions, options_.hidden, options_.stddev);
  declaration.read_in_forward_only();
  declaration.weight(named("types"), options_.types, options_.hidden, options_.stddev);
  declaration.read_in_forward_only();
  declaration.embedding(rows, options_.hidden, vocabulary);
  const DType dtype = declaration.setup().dtype;
  // Forward and backward each move all rows once where tokens are divided; else forward sums them.
  if (is_divided()) declaration.sums(rows * options_.hidden, dtype, options_.tensor);
  if (!options_.tensor.divides_tokens) return;
  declaration.activation(named("all_forward"), {rows, options_.hidden}, Life::kForward);
  declaration.activation(named("all_backward"), {rows, options_.hidden}, Life::kBackward);
}

Tensor EmbeddingPart::tokens(const Pass& pass) const {
  const bool source = options_.side == Side::kSource;
  const std::int64_t sequence = sequence_of(pass.setup.shape, options_.side);
  const Tensor& field = source ? pass.batch.source : pass.batch.tokens;
  return checked(field, source ? "source" : "tokens", block_, DType::kI32,
                 {pass.setup.shape.batch, sequence})
      .reshaped({pass.setup.shape.batch * sequence});
}

Tensor EmbeddingPart::types(const Pass& pass) const {
  if (options_.types == 0) return {};
  const BatchShape& shape = pass.setup.shape;
  return checked(pass.batch.types, "types", block_, DType::kI32, {shape.batch, shape.sequence})
      .reshaped({shape.tokens()});
}

ops::Dropout EmbeddingPart::dropout(const Pass& pass) const {
  return dropout_of(pass, named("dropout"), options_.dropout,
                    sequence_of(pass.setup.shape, options_.side) * options_.hidden);
}

std::vector<EmbeddingPart::Rows> EmbeddingPart::rows_by_position(const Setup& setup) const {
  const std::int64_t sequence = sequence_of(setup.shape, options_.side);
  const std::vector<TokenRun> runs = token_runs(setup.context, sequence);
  if (runs.size() == 1) {
    return {{.rows = {.first = 0, .count = setup.shape.batch * sequence},
             .sequence = sequence,
             .position = runs[0].position + setup.slice.first}};
  }
  std::vector<Rows> all;
  for (std::int64_t i = 0; i < setup.shape.batch; ++i) {
    for (const TokenRun& run : runs) {
      all.push_back({.rows = {.first = i * sequence + run.local, .count = run.count},
                     .sequence = run.count,
                     .position = run.position});
    }
  }
  return all;
}

Tensor EmbeddingPart::positions_of(const Pass& pass, const Tensor& table, const Rows& part) {
  if (pass.setup.context.size == 1 && pass.setup.slice.is_whole()) return table;
  return slice_of(table, {.first = part.position, .count = part.sequence});
}

void EmbeddingPart::look_up(const Pass& pass, const ops::Embedding& whole) const {
  for (const Rows& part : rows_by_position(pass.setup)) {
    const Extent& rows = part.rows;
    ops::Embedding call = whole;
    call.tokens = slice_of(whole.tokens, rows);
    call.types = slice_of(whole.types, rows);
    call.sequence = part.sequence;
    call.positions_table = positions_of(pass, whole.positions_table, part);
    if (whole.dropout.probability > 0) {
      call.dropout = own_part(whole.dropout, rows, options_.hidden);
    }
    call.y = slice_of(whole.y, rows);
    pass.ops.run(call);
  }
}

void EmbeddingPart::forward(const Pass& pass, const Tensor& y) const {
  ops::Embedding call{.tokens = tokens(pass),
                      .types = types(pass),
                      .sequence = sequence_of(pass.setup.shape, options_.side),
                      .tokens_table = parameter(pass, kTokens),
                      .positions_table = parameter(pass, kPositions),
                      .types_table = parameter(pass, kTypes),
                      .dropout = dropout(pass),
                      .y = y};
  if (!is_divided()) {
    look_up(pass, call);
    return scale(pass, y);
  }
  call.dropout = {};  // after the sum
  call.first_token = own_tokens().first;
  call.vocabulary = options_.vocabulary;
  if (options_.tensor.rank > 0) {
    call.types = call.positions_table = call.types_table = Tensor();
  }
  const bool scatters = options_.tensor.divides_tokens;
  if (scatters) call.y = tensor(pass, kInForward);
  look_up(pass, call);
  if (scatters) {
    pass.tensor->scatter_sum(pass.ops, call.y, y);
  } else {
    pass.tensor->sum(pass.ops, y);
  }
  scale(pass, y);
  drop(pass, y);
}

void EmbeddingPart::scale(const Pass& pass, const Tensor& rows) const {
  if (options_.scale == 1) return;
  pass.ops.run(ops::Scale{.x = rows, .factor = rounded_to(rows.dtype(), options_.scale)});
}

void EmbeddingPart::drop(const Pass& pass, const Tensor& rows) const {
  ops::Dropout dropping = dropout(pass);
  if (dropping.probability == 0) return;
  const Extent own = stream_tokens(pass.setup.shape, options_.side, options_.tensor);
  dropping = own_part(dropping, own, options_.hidden);
  pass.ops.run(ops::Drop{.dropout = dropping, .x = rows, .y = rows});
}

void EmbeddingPart::decode(const DecodePass& at, const Tensor& y) const {
  const std::int64_t rows = at.pass.setup.shape.sequence;
  const Tensor& positions = parameter(at.pass, kPositions);
  const bool learned = ops::is_given(positions);
  if (at.steps()) {
    // Positions lie on the device, as types do; a table of positions is read by them like one of
    // types.
    at.pass.ops.run(ops::Embedding{.tokens = tokens(at.pass),
                                   .types = learned ? at.lengths : Tensor(),
                                   .sequence = rows,
                                   .tokens_table = parameter(at.pass, kTokens),
                                   .positions_table = {},
                                   .types_table = learned ? positions : Tensor(),
                                   .dropout = {},
                                   .y = y});
    return scale(at.pass, y);
  }
  at.pass.ops.run(
      ops::Embedding{.tokens = tokens(at.pass),
                     .types = {},
                     .sequence = rows,
                     .tokens_table = parameter(at.pass, kTokens),
                     .positions_table = learned ? positions.slice(at.position, rows) : Tensor(),
                     .types_table = {},
                     .dropout = {},
                     .y = y});
  scale(at.pass, y);
}

void EmbeddingPart::backward(const Pass& pass, const Tensor& given) const {
  Tensor dy = given;
  ops::Dropout dropping = dropout(pass);
  scale(pass, given);
  if (options_.tensor.divides_tokens) {
    drop(pass, given);
    dropping = {};
    dy = tensor(pass, kInBackward);
    pass.tensor->gather_rows(pass.ops, given, dy);
  }
  const bool apart = pass.separate_sparse_gradient && options_.tied_to.empty();
  const Tensor all_tokens = tokens(pass);
  const Tensor all_types = types(pass);
  for (const Rows& part : rows_by_position(pass.setup)) {
    const Extent& rows = part.rows;
    pass.ops.run(ops::EmbeddingBackward{
        .tokens = slice_of(all_tokens, rows),
        .types = slice_of(all_types, rows),
        .sequence = part.sequence,
        .dy = slice_of(dy, rows),
        .dropout = dropping.probability > 0 ? own_part(dropping, rows, options_.hidden) : dropping,
        .dtokens_table = apart ? Tensor() : gradient(pass, kTokens),
        .dpositions_table = positions_of(pass, gradient(pass, kPositions), part),
        .dtypes_table = gradient(pass, kTypes),
        .first_token = is_divided() ? own_tokens().first : 0,
        .vocabulary = is_divided() ? options_.vocabulary : 0});
  }
  for (const std::size_t table : {kTokens, kPositions, kTypes}) finished(pass, table);
}

std::optional<SparseGradient> EmbeddingPart::sparse_gradient(const Pass& pass,
                                                             const Tensor& dy) const {
  if (!options_.tied_to.empty() || is_divided()) return std::nullopt;
  return SparseGradient{.parameter = parameter_index(kTokens), .tokens = tokens(pass), .rows = dy};
}

}  // namespace lockstep::nn
