#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
namespace {

constexpr DType kF32 = DType::kF32;

// master, gradient and parameter; a step goes over flat memory, so only their lengths count.
template <class Op>
void check_step(const FieldCheck& fields, const Op& op) {
  const std::size_t elements = op.master.elements();
  fields.expect_elements({"master", op.master}, elements, {kF32});
  fields.expect_elements({"gradient", op.gradient}, elements, {kF32, DType::kBF16, DType::kF16},
                         "as many as master has");
  fields.apart({"gradient", op.gradient}, {{"master", op.master}, {"parameter", op.parameter}});
  if (!is_given(op.parameter)) return;
  fields.expect_elements({"parameter", op.parameter}, elements, {DType::kBF16, DType::kF16},
                         "as many as master has");
  fields.apart({"parameter", op.parameter}, {{"master", op.master}});
}

// moment, variance or velocity.
template <class Op>
void check_state(const FieldCheck& fields, const Field& state, const Op& op) {
  fields.expect_elements(state, op.master.elements(), {kF32}, "as many as master has");
  fields.apart(state,
               {{"master", op.master}, {"gradient", op.gradient}, {"parameter", op.parameter}});
}

}  // namespace

void check(const Adam& op, const Accepts& accepts) {
  const FieldCheck fields("adam", accepts);
  fields.number(op.step >= 1, "step", static_cast<double>(op.step), "1 or more");
  fields.number(op.beta1 >= 0 && op.beta1 < 1, "beta1", op.beta1, "0 or more and below 1");
  fields.number(op.beta2 >= 0 && op.beta2 < 1, "beta2", op.beta2, "0 or more and below 1");
  fields.number(op.epsilon >= 0, "epsilon", op.epsilon, "0 or more");
  check_step(fields, op);
  check_state(fields, {"moment", op.moment}, op);
  check_state(fields, {"variance", op.variance}, op);
  fields.apart({"moment", op.moment}, {{"variance", op.variance}});
}

void check(const Sgd& op, const Accepts& accepts) {
  const FieldCheck fields("sgd", accepts);
  fields.number(op.momentum >= 0 && op.momentum < 1, "momentum", op.momentum,
                "0 or more and below 1");
  check_step(fields, op);
  if (op.momentum != 0) {
    check_state(fields, {"velocity", op.velocity}, op);
  } else {
    fields.absent({"velocity", op.velocity}, "without momentum");
  }
}

void check(const SumOfSquares& op, const Accepts& accepts) {
  const FieldCheck fields("sum_of_squares", accepts);
  const DType f64 = DType::kF64;
  fields.expect_elements({"x", op.x}, op.x.elements(), {kF32, f64, DType::kBF16, DType::kF16});
  const auto runs = static_cast<std::int64_t>(run_count(op.x.elements()));
  const bool by_runs = op.result.elements() == static_cast<std::size_t>(runs);
  fields.expect({"result", op.result}, {by_runs ? runs : 1}, {f64});
  fields.apart({"result", op.result}, {{"x", op.x}});
}

}  // namespace lockstep::ops
