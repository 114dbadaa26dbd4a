#include "lockstep/base/error.h"
#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
void check(const Quantize& op, const Accepts& accepts) {
  const FieldCheck fields("quantize", accepts);
  const bool has_x = &quantized_from(op) == &op.x;
  const Field from = has_x ? Field{"x", op.x} : Field{"z", op.z};
  const DType type = fields.compute_type(from);
  fields.expect(from, {kAny, kAny}, {type});
  const std::int64_t rows = from.tensor.shape()[0];
  const std::int64_t columns = from.tensor.shape()[1];
  if (has_x && is_given(op.z)) fields.expect({"z", op.z}, {rows, columns}, {type}, "as x is");
  fields.expect({"scaling", op.scaling}, {kScaling}, {DType::kF32});
  if (op.calibrates) fields.given({"amax", op.amax}, "to calibrate");
  if (is_given(op.amax)) fields.expect({"amax", op.amax}, {1}, {DType::kF32});
  if (is_given(op.y)) fields.expect({"y", op.y}, {rows, columns}, {DType::kU8}, "as x is");
  if (is_given(op.transposed)) {
    fields.expect({"transposed", op.transposed}, {columns, rows}, {DType::kU8}, "as x is");
  }
  if (is_given(op.dbias)) {
    fields.expect({"dbias", op.dbias}, {columns}, {type, DType::kF32}, "as x is");
  }
  const std::initializer_list<Field> inputs = {{"x", op.x}, {"z", op.z}};
  fields.apart({"y", op.y}, inputs);
  fields.apart({"transposed", op.transposed}, inputs);
  fields.apart({"dbias", op.dbias}, inputs);
  fields.apart({"transposed", op.transposed}, {{"y", op.y}});
}

void check(const ScaledMatmul& op, const Accepts& accepts) {
  const FieldCheck fields("scaled_matmul", accepts);
  fields.expect({"a", op.a}, {kAny, kAny}, {DType::kU8});
  fields.expect({"b", op.b}, {kAny, op.a.shape()[1]}, {DType::kU8}, "as a is");
  const Shape output{op.a.shape()[0], op.b.shape()[0]};
  const DType type = fields.compute_type({"y", op.y});
  fields.expect({"y", op.y}, output, {type}, "as a and b are");
  fields.expect({"a_scaling", op.a_scaling}, {kScaling}, {DType::kF32});
  fields.expect({"b_scaling", op.b_scaling}, {kScaling}, {DType::kF32});
  if (is_given(op.bias)) fields.expect({"bias", op.bias}, {output[1]}, {type}, "as y is");
  if (is_given(op.residual)) {
    fields.expect({"residual", op.residual}, output, {type}, "as y is");
  }
  fields.apart({"y", op.y}, {{"a", op.a}, {"b", op.b}, {"bias", op.bias}});
  fields.apart_or_same({"y", op.y}, {{"residual", op.residual}});
}

void check(const UpdateScaling& op, const Accepts& accepts) {
  const FieldCheck fields("update_scaling", accepts);
  fields.expect({"scaling", op.scaling}, {kAny, kScaling}, {DType::kF32});
  fields.expect({"amax", op.amax}, {op.scaling.shape()[0]}, {DType::kF32}, "as scaling is");
  fields.apart({"amax", op.amax}, {{"scaling", op.scaling}});
}

}  // namespace lockstep::ops
