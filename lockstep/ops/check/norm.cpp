#include <utility>

#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
namespace {

// The statistics: both of a layer norm, one of an RMS norm.
void check_statistics(const FieldCheck& fields, NormKind kind, std::int64_t rows, DType type,
                      const Tensor& mean, const Tensor& rstd) {
  if (kind == NormKind::kLayer) {
    fields.expect({"mean", mean}, {rows}, {statistic_type(type)}, "for every row");
  } else {
    fields.absent({"mean", mean}, "for an RMS norm");
  }
  fields.expect({"rstd", rstd}, {rows}, {statistic_type(type)}, "for every row");
}

// What HeadNorm and its backward have alike; `rows` names a field with rows of heads.
template <class Op>
void check_heads(const FieldCheck& fields, const Op& op, const Field& rows) {
  for (const auto& [field, value] : {std::pair{"heads", op.heads}, {"head_size", op.head_size}}) {
    fields.number(value >= 1, field, static_cast<double>(value), "1 or more");
  }
  const DType type = fields.compute_type(rows);
  fields.expect(rows, {kAny, kAny}, {type});
  fields.expect({"gain", op.gain}, {op.head_size}, {type}, "as the heads say");
  fields.expect({"rstd", op.rstd}, {rows.tensor.shape()[0], op.heads}, {statistic_type(type)},
                "for every head");
}

}  // namespace

void check(const Norm& op, const Accepts& accepts) {
  const FieldCheck fields("norm", accepts);
  const DType type = fields.compute_type({"x", op.x});
  fields.expect({"x", op.x}, {kAny, kAny}, {type});
  const Shape& shape = op.x.shape();
  fields.number(op.epsilon >= 0, "epsilon", op.epsilon, "0 or more");
  if (is_given(op.branch)) {
    fields.dropout(op.dropout);
    fields.expect({"branch", op.branch}, shape, {type}, "as x is");
    fields.given({"sum", op.sum}, "with a branch");
    fields.expect({"sum", op.sum}, shape, {type}, "as x is");
  } else {
    fields.absent({"sum", op.sum}, "without a branch");
  }
  fields.expect({"gain", op.gain}, {shape[1]}, {type}, "as x is");
  if (op.kind == NormKind::kRms) fields.absent({"bias", op.bias}, "for an RMS norm");
  if (is_given(op.bias)) fields.expect({"bias", op.bias}, {shape[1]}, {type}, "as x is");
  fields.expect({"y", op.y}, shape, {type}, "as x is");
  check_statistics(fields, op.kind, shape[0], type, op.mean, op.rstd);

  fields.apart_or_same({"sum", op.sum}, {{"x", op.x}, {"branch", op.branch}});
  fields.apart({"sum", op.sum}, {{"gain", op.gain}, {"bias", op.bias}});
  fields.apart(
      {"y", op.y},
      {{"x", op.x}, {"branch", op.branch}, {"sum", op.sum}, {"gain", op.gain}, {"bias", op.bias}});
  fields.apart({"rstd", op.rstd}, {{"mean", op.mean}, {"y", op.y}, {"sum", op.sum}});
  fields.apart({"mean", op.mean}, {{"y", op.y}, {"sum", op.sum}});
}

void check(const NormBackward& op, const Accepts& accepts) {
  const FieldCheck fields("norm_backward", accepts);
  const DType type = fields.compute_type({"dy", op.dy});
  fields.expect({"dy", op.dy}, {kAny, kAny}, {type});
  const Shape& shape = op.dy.shape();
  fields.expect({"sum", op.sum}, shape, {type}, "as dy is");
  fields.expect({"gain", op.gain}, {shape[1]}, {type}, "as dy is");
  check_statistics(fields, op.kind, shape[0], type, op.mean, op.rstd);
  if (is_given(op.dresidual)) {
    fields.expect({"dresidual", op.dresidual}, shape, {type}, "as dy is");
  }
  fields.expect({"dsum", op.dsum}, shape, {type}, "as dy is");
  if (is_given(op.dbranch)) {
    fields.dropout(op.dropout);
    fields.expect({"dbranch", op.dbranch}, shape, {type}, "as dy is");
  }
  fields.expect({"dgain", op.dgain}, {shape[1]}, {type, DType::kF32}, "as gain is");
  if (op.kind == NormKind::kRms) fields.absent({"dbias", op.dbias}, "for an RMS norm");
  if (is_given(op.dbias)) {
    fields.expect({"dbias", op.dbias}, {shape[1]}, {type, DType::kF32}, "as gain is");
  }

  const Field dsum{"dsum", op.dsum};
  fields.apart_or_same(dsum, {{"dy", op.dy}, {"dresidual", op.dresidual}});
  fields.apart(dsum, {{"sum", op.sum}, {"gain", op.gain}, {"dbranch", op.dbranch}});
  fields.apart({"dbranch", op.dbranch},
               {{"dy", op.dy}, {"sum", op.sum}, {"gain", op.gain}, {"dresidual", op.dresidual}});
  fields.apart({"dgain", op.dgain}, {{"gain", op.gain}, {"dbias", op.dbias}, dsum});
}

void check(const HeadNorm& op, const Accepts& accepts) {
  const FieldCheck fields("head_norm", accepts);
  const Field x{"x", op.x.rows};
  check_heads(fields, op, x);
  fields.number(op.epsilon >= 0, "epsilon", op.epsilon, "0 or more");
  const std::int64_t rows = op.x.rows.shape()[0];
  const std::int64_t columns = extents_product(op.heads, op.head_size);
  const DType type = op.x.rows.dtype();
  fields.heads("x", op.x, rows, columns, type);
  fields.heads("y", op.y, rows, columns, type);
  if (op.x.first != op.y.first || op.x.rows.data() != op.y.rows.data()) {
    fields.apart({"y", op.y.rows}, {x});
  }
  fields.apart({"y", op.y.rows}, {{"gain", op.gain}, {"rstd", op.rstd}});
  fields.apart({"rstd", op.rstd}, {x, {"gain", op.gain}});
}

void check(const HeadNormBackward& op, const Accepts& accepts) {
  const FieldCheck fields("head_norm_backward", accepts);
  const Field x{"x", op.x.rows};
  const Field dx{"dx", op.dx.rows};
  check_heads(fields, op, x);
  const std::int64_t rows = op.x.rows.shape()[0];
  const std::int64_t columns = extents_product(op.heads, op.head_size);
  const DType type = op.x.rows.dtype();
  fields.heads("x", op.x, rows, columns, type);
  fields.heads("dy", op.dy, rows, columns, type);
  fields.heads("dx", op.dx, rows, columns, type);
  fields.expect({"dgain", op.dgain}, {op.head_size}, {type, DType::kF32}, "as gain is");
  if (op.dx.first != op.dy.first || op.dx.rows.data() != op.dy.rows.data()) {
    fields.apart(dx, {{"dy", op.dy.rows}});
  }
  fields.apart(dx, {x, {"gain", op.gain}, {"rstd", op.rstd}, {"dgain", op.dgain}});
  fields.apart({"dgain", op.dgain}, {{"gain", op.gain}, x, {"dy", op.dy.rows}, {"rstd", op.rstd}});
}

}  // namespace lockstep::ops
