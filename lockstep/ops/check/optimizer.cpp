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

// first moment, second moment or velocity.
template <class Op>
void check_state(const FieldCheck& fields, const Field& state, const Op& op) {
  fields.expect_elements(state, op.master.elements(), {kF32}, "as many as master has");
  fields.apart(state,
               {{"master", op.master}, {"gradient", op.gradient}, {"parameter", op.parameter}});
}

}  // namespace

void check(const Adam& op, const Accepts& accepts) {
  const FieldCheck fields("adam", accepts);
  fields.scalar("step", op.step);
  if (!is_given(op.step.at)) fields.number(op.step.value >= 1, "step", op.step.value, "1 or more");
  fields.scalar("rate", op.rate);
  fields.scalar("gradient_scale", op.gradient_scale);
  fields.number(op.beta1 >= 0 && op.beta1 < 1, "beta1", op.beta1, "0 or more and below 1");
  fields.number(op.beta2 >= 0 && op.beta2 < 1, "beta2", op.beta2, "0 or more and below 1");
  fields.number(op.epsilon >= 0, "epsilon", op.epsilon, "0 or more");
  check_step(fields, op);
  check_state(fields, {"first_moment", op.first_moment}, op);
  check_state(fields, {"second_moment", op.second_moment}, op);
  fields.apart({"first_moment", op.first_moment}, {{"second_moment", op.second_moment}});
}

void check(const Sgd& op, const Accepts& accepts) {
  const FieldCheck fields("sgd", accepts);
  fields.scalar("rate", op.rate);
  fields.scalar("gradient_scale", op.gradient_scale);
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

void check(const AdamSegments& op, const Accepts& accepts) {
  check(op.adam, accepts);
  const FieldCheck fields("adam_segments", accepts);
  fields.expect({"table", op.table}, {kAny, 4}, {DType::kI64}, "as adam_table() makes it");
}

void check(const ChunkedSumOfSquares& op, const Accepts& accepts) {
  const FieldCheck fields("chunked_sum_of_squares", accepts);
  fields.number(
      op.chunk_elements >= 1 && op.chunk_elements <= static_cast<std::int64_t>(SumOfSquares::kMost),
      "chunk_elements", static_cast<double>(op.chunk_elements), "1 or more and up to 2^20");
  fields.expect_elements({"x", op.x}, op.x.elements(), {kF32, DType::kBF16, DType::kF16});
  const auto elements = static_cast<std::int64_t>(op.x.elements());
  const std::int64_t chunks = (elements + op.chunk_elements - 1) / op.chunk_elements;
  fields.expect({"results", op.results}, {chunks}, {DType::kF64});
  fields.apart({"results", op.results}, {{"x", op.x}});
}

void check(const ClipScale& op, const Accepts& accepts) {
  const FieldCheck fields("clip_scale", accepts);
  fields.number(op.limit >= 0, "limit", op.limit, "0 or more");
  fields.scalar("loss_scale", op.loss_scale);
  fields.expect_elements({"squares", op.squares}, op.squares.elements(), {DType::kF64});
  fields.expect({"norm", op.norm}, {1}, {DType::kF64});
  fields.expect({"scale", op.scale}, {1}, {DType::kF64});
  fields.apart({"scale", op.scale}, {{"norm", op.norm}, {"squares", op.squares}});
}

}  // namespace lockstep::ops
