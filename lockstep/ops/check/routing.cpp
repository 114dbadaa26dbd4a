#include "lockstep/ops/routing.h"
#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
namespace {

constexpr Types kIndex = {DType::kI32};

// The indices of a routing, for its logits.
void check_pairs(const FieldCheck& fields, const Tensor& logits, const Tensor& experts,
                 const Tensor& rows) {
  fields.expect({"logits", logits}, {kAny, kAny}, {fields.compute_type({"logits", logits})});
  const std::int64_t tokens = logits.shape()[0];
  fields.expect({"experts", experts}, {tokens, kAny}, kIndex, "for every token");
  const std::int64_t chosen = experts.shape()[1];
  fields.number(chosen >= 1 && chosen <= logits.shape()[1], "the width of experts",
                static_cast<double>(chosen), "from 1 to the number of experts");
  fields.expect({"rows", rows}, experts.shape(), kIndex, "as experts is");
}

void check_rows(const FieldCheck& fields, const Field& from, const Field& to) {
  const DType type = fields.compute_type(from);
  fields.expect(from, {kAny, kAny}, {type});
  fields.expect(to, {kAny, from.tensor.shape()[1]}, {type}, "as wide as what it is made of");
}

}  // namespace

void check(const Route& op, const Accepts& accepts) {
  const FieldCheck fields("route", accepts);
  check_pairs(fields, op.logits, op.experts, op.rows);
  const auto pairs = static_cast<std::int64_t>(op.rows.elements());
  fields.expect({"pairs", op.pairs}, {pairs}, kIndex, "for every pair");
  fields.expect({"counts", op.counts}, {op.logits.shape()[1]}, kIndex, "for every expert");
  fields.expect({"weights", op.weights}, {pairs}, {statistic_type(op.logits.dtype())},
                "for every pair");
  const Field logits{"logits", op.logits}, experts{"experts", op.experts}, rows{"rows", op.rows},
      of_rows{"pairs", op.pairs}, counts{"counts", op.counts};
  fields.apart(experts, {logits});
  fields.apart(rows, {logits, experts});
  fields.apart(of_rows, {logits, experts, rows});
  fields.apart(counts, {logits, experts, rows, of_rows});
  fields.apart({"weights", op.weights}, {logits, experts, rows, of_rows, counts});
}

void check(const RouteBackward& op, const Accepts& accepts) {
  const FieldCheck fields("route_backward", accepts);
  check_pairs(fields, op.logits, op.experts, op.rows);
  const DType statistic = statistic_type(op.logits.dtype());
  const auto pairs = static_cast<std::int64_t>(op.rows.elements());
  fields.expect({"weights", op.weights}, {pairs}, {statistic}, "for every pair");
  fields.expect({"dweights", op.dweights}, {pairs}, {statistic}, "for every pair");
  if (is_given(op.balance)) {
    fields.expect({"balance", op.balance}, {op.logits.shape()[1]}, {statistic}, "for every expert");
  }
  fields.expect({"dlogits", op.dlogits}, op.logits.shape(), {op.logits.dtype()}, "as logits is");
  fields.apart_or_same({"dlogits", op.dlogits}, {{"logits", op.logits}});
  fields.apart({"dlogits", op.dlogits}, {{"experts", op.experts},
                                         {"rows", op.rows},
                                         {"weights", op.weights},
                                         {"dweights", op.dweights},
                                         {"balance", op.balance}});
}

void check(const GatherTokens& op, const Accepts& accepts) {
  const FieldCheck fields("gather_tokens", accepts);
  fields.number(op.experts_per_token >= 1, "experts_per_token",
                static_cast<double>(op.experts_per_token), "1 or more");
  check_rows(fields, {"x", op.x}, {"y", op.y});
  fields.expect({"pairs", op.pairs}, {op.y.shape()[0]}, kIndex, "for every row of y");
  fields.apart({"y", op.y}, {{"x", op.x}, {"pairs", op.pairs}});
}

void check(const CombineTokens& op, const Accepts& accepts) {
  const FieldCheck fields("combine_tokens", accepts);
  check_rows(fields, {"routed", op.routed}, {"y", op.y});
  fields.expect({"rows", op.rows}, {op.y.shape()[0], kAny}, kIndex, "for every row of y");
  if (is_given(op.weights)) {
    fields.expect({"weights", op.weights}, {op.routed.shape()[0]},
                  {statistic_type(op.routed.dtype())}, "for every routed row");
  }
  if (is_given(op.residual)) {
    fields.expect({"residual", op.residual}, op.y.shape(), {op.y.dtype()}, "as y is");
    fields.apart_or_same({"y", op.y}, {{"residual", op.residual}});
  }
  fields.apart({"y", op.y}, {{"routed", op.routed}, {"rows", op.rows}, {"weights", op.weights}});
}

void check(const WeightRows& op, const Accepts& accepts) {
  const FieldCheck fields("weight_rows", accepts);
  const DType type = fields.compute_type({"x", op.x});
  fields.expect({"x", op.x}, {kAny, kAny}, {type});
  fields.expect({"dx", op.dx}, op.x.shape(), {type}, "as x is");
  const std::int64_t rows = op.x.shape()[0];
  fields.expect({"weights", op.weights}, {rows}, {statistic_type(type)}, "for every row");
  fields.expect({"dweights", op.dweights}, {rows}, {statistic_type(type)}, "for every row");
  const Field x{"x", op.x}, dx{"dx", op.dx}, weights{"weights", op.weights};
  fields.apart(x, {dx, weights});
  fields.apart(dx, {weights});
  fields.apart({"dweights", op.dweights}, {x, dx, weights});
}

void check(const AddCounts& op, const Accepts& accepts) {
  const FieldCheck fields("add_counts", accepts);
  fields.expect({"counts", op.counts}, {kAny}, kIndex);
  fields.expect({"sums", op.sums}, op.counts.shape(), kIndex, "as counts is");
  fields.apart({"sums", op.sums}, {{"counts", op.counts}});
}

void check(const CountTargets& op, const Accepts& accepts) {
  const FieldCheck fields("count_targets", accepts);
  fields.expect({"targets", op.targets}, {kAny}, kIndex);
  fields.expect({"count", op.count}, {1}, kIndex);
  fields.apart({"count", op.count}, {{"targets", op.targets}});
}

void check(const BalanceExperts& op, const Accepts& accepts) {
  const FieldCheck fields("balance_experts", accepts);
  fields.number(op.experts_per_token >= 1, "experts_per_token",
                static_cast<double>(op.experts_per_token), "1 or more");
  fields.scalar("factor", op.factor);
  fields.expect({"balance", op.balance}, {kAny}, {DType::kF32}, "for every expert");
  fields.expect({"counts", op.counts}, {op.balance.shape()[0] + 1}, kIndex,
                "for every expert, and for targets");
  fields.apart({"balance", op.balance}, {{"counts", op.counts}});
}

}  // namespace lockstep::ops
