#include "lockstep/nn/parts/embedding.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::nn {

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
  check_positions(sequence_of(declaration.setup().shape, options_.side));
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

void EmbeddingPart::forward(const Pass& pass, const Tensor& y) const {
  ops::Embedding call{.tokens = tokens(pass),
                      .types = types(pass),
                      .sequence = sequence_of(pass.setup.shape, options_.side),
                      .tokens_table = parameter(pass, kTokens),
                      .positions_table = parameter(pass, kPositions),
                      .types_table = parameter(pass, kTypes),
                      .dropout = dropout(pass),
                      .y = y};
  if (!is_divided()) return pass.ops.run(call);
  call.dropout = {};  // after the sum
  call.first_token = own_tokens().first;
  call.vocabulary = options_.vocabulary;
  if (options_.tensor.rank > 0) {
    call.types = call.positions_table = call.types_table = Tensor();
  }
  const bool scatters = options_.tensor.divides_tokens;
  if (scatters) call.y = tensor(pass, kInForward);
  pass.ops.run(call);
  if (scatters) {
    pass.tensor->scatter_sum(pass.ops, call.y, y);
  } else {
    pass.tensor->sum(pass.ops, y);
  }
  drop(pass, y);
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
    return;
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
}

void EmbeddingPart::backward(const Pass& pass, const Tensor& given) const {
  Tensor dy = given;
  ops::Dropout dropping = dropout(pass);
  if (options_.tensor.divides_tokens) {
    drop(pass, given);
    dropping = {};
    dy = tensor(pass, kInBackward);
    pass.tensor->gather_rows(pass.ops, given, dy);
  }
  const bool apart = pass.separate_sparse_gradient && options_.tied_to.empty();
  pass.ops.run(ops::EmbeddingBackward{.tokens = tokens(pass),
                                      .types = types(pass),
                                      .sequence = sequence_of(pass.setup.shape, options_.side),
                                      .dy = dy,
                                      .dropout = dropping,
                                      .dtokens_table = apart ? Tensor() : gradient(pass, kTokens),
                                      .dpositions_table = gradient(pass, kPositions),
                                      .dtypes_table = gradient(pass, kTypes),
                                      .first_token = is_divided() ? own_tokens().first : 0,
                                      .vocabulary = is_divided() ? options_.vocabulary : 0});
  for (const std::size_t table : {kTokens, kPositions, kTypes}) finished(pass, table);
}

std::optional<SparseGradient> EmbeddingPart::sparse_gradient(const Pass& pass,
                                                             const Tensor& dy) const {
  if (!options_.tied_to.empty() || is_divided()) return std::nullopt;
  return SparseGradient{.parameter = parameter_index(kTokens), .tokens = tokens(pass), .rows = dy};
}

}  // namespace lockstep::nn
