#include "lockstep/base/error.h"
#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
namespace {

// What Linear and LinearActivation have in common; returns the shape of y.
Shape check_forward(const FieldCheck& fields, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const Tensor& y) {
  const DType type = fields.compute_type({"x", x});
  fields.expect({"x", x}, {kAny, kAny}, {type});
  fields.expect({"weight", weight}, {kAny, x.shape()[1]}, {type}, "as x is");
  const std::int64_t out = weight.shape()[0];
  const Shape output{x.shape()[0], out};
  if (is_given(bias)) fields.expect({"bias", bias}, {out}, {type}, "as weight is");
  fields.expect({"y", y}, output, {type}, "as x and weight are");
  fields.apart({"y", y}, {{"x", x}, {"weight", weight}, {"bias", bias}});
  return output;
}

}  // namespace

void check(const Linear& op, const Accepts& accepts) {
  const FieldCheck fields("linear", accepts);
  const Shape output = check_forward(fields, op.x, op.weight, op.bias, op.y);
  if (is_given(op.residual)) {
    fields.expect({"residual", op.residual}, output, {op.x.dtype()}, "as y is");
  }
  fields.apart_or_same({"y", op.y}, {{"residual", op.residual}});
}

void check(const LinearActivation& op, const Accepts& accepts) {
  const FieldCheck fields("linear_activation", accepts);
  const Shape output = check_forward(fields, op.x, op.weight, op.bias, op.y);
  if (is_given(op.derivative)) {
    fields.expect({"derivative", op.derivative}, output, {op.x.dtype()}, "as y is");
    fields.apart({"derivative", op.derivative},
                 {{"x", op.x}, {"weight", op.weight}, {"bias", op.bias}, {"y", op.y}});
  }
  if (is_given(op.z)) {
    fields.expect({"z", op.z}, output, {op.x.dtype()}, "as y is");
    fields.apart({"z", op.z}, {{"x", op.x},
                               {"weight", op.weight},
                               {"bias", op.bias},
                               {"y", op.y},
                               {"derivative", op.derivative}});
  }
}

void check(const LinearBackwardInput& op, const Accepts& accepts) {
  const FieldCheck fields("linear_backward_input", accepts);
  const DType type = fields.compute_type({"dy", op.dy});
  fields.expect({"dy", op.dy}, {kAny, kAny}, {type});
  fields.expect({"weight", op.weight}, {op.dy.shape()[1], kAny}, {type}, "as dy is");
  const Shape input{op.dy.shape()[0], op.weight.shape()[1]};
  fields.expect({"dx", op.dx}, input, {type}, "as dy and weight are");
  if (is_given(op.factor)) {
    if (op.accumulate) fields.absent({"factor", op.factor}, "together with accumulate");
    fields.expect({"factor", op.factor}, input, {type}, "as dx is");
  }
  if (is_given(op.z)) {
    if (!accepts.z) fields.absent({"z", op.z}, "here, where a derivative is kept");
    if (op.accumulate) fields.absent({"z", op.z}, "together with accumulate");
    if (is_given(op.factor)) fields.absent({"z", op.z}, "together with factor");
    fields.expect({"z", op.z}, input, {type}, "as dx is");
  }
  fields.apart({"dx", op.dx},
               {{"dy", op.dy}, {"weight", op.weight}, {"factor", op.factor}, {"z", op.z}});
}

void check(const LinearBackwardWeight& op, const Accepts& accepts) {
  const FieldCheck fields("linear_backward_weight", accepts);
  const DType type = fields.compute_type({"dy", op.dy});
  fields.expect({"dy", op.dy}, {kAny, kAny}, {type});
  fields.expect({"x", op.x}, {op.dy.shape()[0], kAny}, {type}, "as dy is");
  const std::int64_t columns = op.dy.shape()[1];
  fields.expect({"dweight", op.dweight},
                {op.first_output ? std::int64_t{kAny} : columns, op.x.shape()[1]},
                {type, DType::kF32}, "as dy and x are");
  const std::int64_t out = op.dweight.shape()[0];
  if (const std::int64_t first = op.first_output.value_or(0); first < 0 || first > columns - out) {
    fail(ErrorCode::kInvalidArgument,
         "linear_backward_weight: outputs {} to {} are asked for, and dy has {}", first,
         first + out, columns);
  }
  if (is_given(op.dbias)) {
    fields.expect({"dbias", op.dbias}, {out}, {type, DType::kF32},
                  op.first_output ? "as dweight is" : "as dy is");
  }
  fields.apart({"dweight", op.dweight}, {{"dy", op.dy}, {"x", op.x}, {"dbias", op.dbias}});
  fields.apart({"dbias", op.dbias}, {{"dy", op.dy}, {"x", op.x}});
}

}  // namespace lockstep::ops
