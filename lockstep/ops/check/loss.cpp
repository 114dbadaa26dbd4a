#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
namespace {

// That classes from `first` on are among `all`, which is 0 where they are not a shard.
void check_classes(const FieldCheck& fields, std::int64_t classes, std::int64_t first,
                   std::int64_t all) {
  fields.number(classes > 0, "the width of logits", static_cast<double>(classes),
                "1 class or more");
  fields.shard("first_class", first, classes, all);
}

}  // namespace

void check(const LogitStatistics& op, const Accepts& accepts) {
  const FieldCheck fields("logit_statistics", accepts);
  const DType type = fields.compute_type({"logits", op.logits});
  fields.expect({"logits", op.logits}, {kAny, kAny}, {type});
  const std::int64_t rows = op.logits.shape()[0];
  check_classes(fields, op.logits.shape()[1], op.first_class, op.all_classes);
  fields.expect({"targets", op.targets}, {rows}, {DType::kI32}, "for every row of logits");
  fields.expect({"statistics", op.statistics}, {rows, kLogitStatistics}, {statistic_type(type)},
                "for every row of logits");
  fields.apart({"statistics", op.statistics}, {{"logits", op.logits}, {"targets", op.targets}});
}

void check(const CrossEntropy& op, const Accepts& accepts) {
  const FieldCheck fields("cross_entropy", accepts);
  const DType type = fields.compute_type({"logits", op.logits});
  fields.expect({"logits", op.logits}, {kAny, kAny}, {type});
  const std::int64_t rows = op.logits.shape()[0];
  check_classes(fields, op.logits.shape()[1], op.first_class, op.all_classes);
  fields.expect({"targets", op.targets}, {rows}, {DType::kI32}, "for every row of logits");
  fields.expect({"losses", op.losses}, {rows}, {statistic_type(type)}, "for every row of logits");
  fields.apart({"losses", op.losses}, {{"logits", op.logits}, {"targets", op.targets}});
  fields.apart({"logits", op.logits}, {{"targets", op.targets}});
  fields.scalar("factor", op.factor);
  fields.softcap("softcap", op.softcap);
  if (op.all_classes == 0) {
    fields.absent({"statistics", op.statistics}, "where the logits have all classes");
    return;
  }
  fields.expect({"statistics", op.statistics}, {kAny, rows, kLogitStatistics},
                {statistic_type(type)}, "for every shard and row of logits");
  fields.apart({"losses", op.losses}, {{"statistics", op.statistics}});
  fields.apart({"logits", op.logits}, {{"statistics", op.statistics}});
}

void check(const SquaredError& op, const Accepts& accepts) {
  const FieldCheck fields("squared_error", accepts);
  const DType type = fields.compute_type({"x", op.x});
  fields.expect({"x", op.x}, {kAny, kAny}, {type});
  fields.expect({"target", op.target}, op.x.shape(), {type}, "as x is");
  fields.expect({"losses", op.losses}, {op.x.shape()[0]}, {statistic_type(type)},
                "for every row of x");
  fields.apart({"losses", op.losses}, {{"x", op.x}, {"target", op.target}, {"dx", op.dx}});
  fields.scalar("factor", op.factor);
  if (!is_given(op.dx)) return;
  fields.expect({"dx", op.dx}, op.x.shape(), {type}, "as x is");
  fields.apart_or_same({"dx", op.dx}, {{"x", op.x}});
  fields.apart({"dx", op.dx}, {{"target", op.target}});
}

}  // namespace lockstep::ops
