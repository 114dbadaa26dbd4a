#include "lockstep/ops/check/fields.h"
#include "lockstep/ops/sampler.h"

namespace lockstep::ops {

void check(const Sample& op, const Accepts& accepts) {
  const FieldCheck fields("sample", accepts);
  check_choice({.temperature = op.temperature, .top_k = op.top_k, .top_p = op.top_p});
  const DType type = fields.compute_type({"logits", op.logits});
  fields.expect({"logits", op.logits}, {kAny, kAny}, {type});
  const std::int64_t batch = op.logits.shape()[0];
  fields.number(op.choices >= 1 && op.choices <= op.logits.shape()[1], "choices",
                static_cast<double>(op.choices), "1 up to as many as there are logits");
  fields.expect({"seeds", op.seeds}, {batch}, {DType::kI64}, "for every sequence");
  fields.expect({"positions", op.positions}, {batch}, {DType::kI32}, "for every sequence");
  fields.expect({"tokens", op.tokens}, {batch}, {DType::kI32}, "for every sequence");
  const Field logits{"logits", op.logits}, seeds{"seeds", op.seeds},
      positions{"positions", op.positions}, tokens{"tokens", op.tokens};
  fields.apart(positions, {logits, seeds});
  fields.apart(tokens, {logits, seeds, positions});
  if (!is_given(op.lengths)) return;
  fields.expect({"lengths", op.lengths}, {batch}, {DType::kI32}, "for every sequence");
  fields.apart({"lengths", op.lengths}, {logits, seeds, positions, tokens});
}

}  // namespace lockstep::ops
