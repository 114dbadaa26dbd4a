#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
namespace {

void check_pair(const FieldCheck& fields, const Tensor& a, const Tensor& b, const Tensor& y) {
  const DType type = fields.compute_type({"a", a});
  fields.expect({"b", b}, a.shape(), {type}, "as a is");
  fields.expect({"y", y}, a.shape(), {type}, "as a is");
  fields.apart_or_same({"y", y}, {{"a", a}, {"b", b}});
}

// That rows of gate_up are two of `half` wide.
void check_gates(const FieldCheck& fields, const Tensor& gate_up, const Field& half) {
  const DType type = fields.compute_type({"gate_up", gate_up});
  fields.expect({"gate_up", gate_up}, {kAny, kAny}, {type});
  const std::int64_t columns = gate_up.shape()[1];
  fields.number(columns % 2 == 0, "the width of gate_up", static_cast<double>(columns),
                "an even number: gates, then ups");
  fields.expect(half, {gate_up.shape()[0], columns / 2}, {type}, "as gate_up is");
}

}  // namespace

void check(const Activate& op, const Accepts& accepts) {
  const FieldCheck fields("activate", accepts);
  const DType type = fields.compute_type({"z", op.z});
  fields.expect({"y", op.y}, op.z.shape(), {type}, "as z is");
  fields.apart_or_same({"y", op.y}, {{"z", op.z}});
  if (!is_given(op.derivative)) return;
  fields.expect({"derivative", op.derivative}, op.z.shape(), {type}, "as z is");
  fields.apart({"derivative", op.derivative}, {{"z", op.z}, {"y", op.y}});
}

void check(const Multiply& op, const Accepts& accepts) {
  check_pair(FieldCheck("multiply", accepts), op.a, op.b, op.y);
}

void check(const Add& op, const Accepts& accepts) {
  check_pair(FieldCheck("add", accepts), op.a, op.b, op.y);
}

void check(const SwiGlu& op, const Accepts& accepts) {
  const FieldCheck fields("swiglu", accepts);
  check_gates(fields, op.gate_up, {"y", op.y});
  fields.apart({"y", op.y}, {{"gate_up", op.gate_up}});
}

void check(const SwiGluBackward& op, const Accepts& accepts) {
  const FieldCheck fields("swiglu_backward", accepts);
  check_gates(fields, op.gate_up, {"dy", op.dy});
  fields.expect({"dgate_up", op.dgate_up}, op.gate_up.shape(), {op.gate_up.dtype()},
                "as gate_up is");
  fields.apart_or_same({"dgate_up", op.dgate_up}, {{"gate_up", op.gate_up}});
  fields.apart({"dgate_up", op.dgate_up}, {{"dy", op.dy}});
}

void check(const Drop& op, const Accepts& accepts) {
  const FieldCheck fields("drop", accepts);
  fields.dropout(op.dropout);
  const DType type = fields.compute_type({"x", op.x});
  fields.expect({"y", op.y}, op.x.shape(), {type}, "as x is");
  fields.apart_or_same({"y", op.y}, {{"x", op.x}});
}

void check(const Cast& op, const Accepts& accepts) {
  const FieldCheck fields("cast", accepts);
  const Types any = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
  fields.expect_elements({"from", op.from}, op.from.elements(), any);
  fields.expect_elements({"to", op.to}, op.from.elements(), any, "as many as from has");
  fields.apart({"to", op.to}, {{"from", op.from}});
}

void check(const Scale& op, const Accepts& accepts) {
  FieldCheck("scale", accepts).compute_type({"x", op.x});
}

void check(const SoftCap& op, const Accepts& accepts) {
  const FieldCheck fields("soft_cap", accepts);
  fields.compute_type({"x", op.x});
  fields.number(op.cap > 0, "cap", op.cap, "more than 0");
  fields.softcap("cap", op.cap);
}

}  // namespace lockstep::ops
