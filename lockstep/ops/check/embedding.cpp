#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
namespace {

// The names of the tables, forward and backward.
struct Names {
  std::string_view tokens;
  std::string_view positions;
  std::string_view types;
  bool needs_tokens;
};

// What forward and backward have in common; `rows` are y or dy.
struct Tables {
  const Tensor& tokens;
  const Tensor& types;
  std::int64_t sequence;
  const Tensor& rows;
  const Tensor& tokens_table;
  const Tensor& positions_table;
  const Tensor& types_table;
};

void check_tables(const FieldCheck& fields, const Names& names, const Tables& op, Types allowed) {
  const std::int64_t width = op.rows.shape()[1];
  if (names.needs_tokens || is_given(op.tokens_table)) {
    fields.expect({names.tokens, op.tokens_table}, {kAny, width}, allowed,
                  "to match the width of the rows");
  }
  if (is_given(op.positions_table)) {
    fields.expect({names.positions, op.positions_table}, {kAny, width}, allowed,
                  "to match the width of the rows");
    fields.number(op.sequence > 0 && op.sequence <= op.positions_table.shape()[0], "sequence",
                  static_cast<double>(op.sequence), "from 1 to the rows of the positions' table");
  }
  if (is_given(op.types_table)) {
    fields.expect({names.types, op.types_table}, {kAny, width}, allowed,
                  "to match the width of the rows");
    fields.expect({"types", op.types}, {op.rows.shape()[0]}, {DType::kI32}, "as tokens is");
  } else {
    fields.absent({"types", op.types}, "without their table");
  }
}

void check_rows(const FieldCheck& fields, const Field& rows, const Tensor& tokens) {
  const DType type = fields.compute_type(rows);
  fields.expect({"tokens", tokens}, {kAny}, {DType::kI32}, "for every row");
  fields.expect(rows, {tokens.shape()[0], kAny}, {type}, "for every token");
}

}  // namespace

void check(const Embedding& op, const Accepts& accepts) {
  const FieldCheck fields("embedding", accepts);
  fields.dropout(op.dropout);
  check_rows(fields, {"y", op.y}, op.tokens);
  check_tables(
      fields, {"tokens_table", "positions_table", "types_table", true},
      {op.tokens, op.types, op.sequence, op.y, op.tokens_table, op.positions_table, op.types_table},
      {op.y.dtype()});
  fields.shard("first_token", op.first_token, op.tokens_table.shape()[0], op.vocabulary);
  fields.apart({"y", op.y}, {{"tokens", op.tokens},
                             {"types", op.types},
                             {"tokens_table", op.tokens_table},
                             {"positions_table", op.positions_table},
                             {"types_table", op.types_table}});
}

void check(const EmbeddingBackward& op, const Accepts& accepts) {
  const FieldCheck fields("embedding_backward", accepts);
  fields.dropout(op.dropout);
  check_rows(fields, {"dy", op.dy}, op.tokens);
  check_tables(fields, {"dtokens_table", "dpositions_table", "dtypes_table", false},
               {op.tokens, op.types, op.sequence, op.dy, op.dtokens_table, op.dpositions_table,
                op.dtypes_table},
               {op.dy.dtype(), DType::kF32});
  if (is_given(op.dtokens_table)) {
    fields.shard("first_token", op.first_token, op.dtokens_table.shape()[0], op.vocabulary);
  }
  const Field dy{"dy", op.dy}, dpositions{"dpositions_table", op.dpositions_table},
      dtypes{"dtypes_table", op.dtypes_table};
  fields.apart({"dtokens_table", op.dtokens_table}, {dy, dpositions, dtypes});
  fields.apart(dpositions, {dy, dtypes});
  fields.apart(dtypes, {dy});
}

}  // namespace lockstep::ops
