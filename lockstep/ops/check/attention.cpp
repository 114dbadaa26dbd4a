#include "lockstep/base/error.h"
#include "lockstep/ops/check/fields.h"

namespace lockstep::ops {
namespace {

void check_shape(const FieldCheck& fields, const AttentionShape& shape) {
  const auto at_least = [&](std::int64_t least, std::string_view field, std::int64_t value) {
    fields.number(value >= least, field, static_cast<double>(value),
                  least == 0 ? "0 or more" : "1 or more");
  };
  at_least(0, "shape.batch", shape.batch);
  at_least(0, "shape.queries", shape.queries);
  at_least(0, "shape.keys", shape.keys);
  at_least(1, "shape.heads", shape.heads);
  at_least(1, "shape.kv_heads", shape.kv_heads);
  at_least(1, "shape.head_size", shape.head_size);
  fields.number(shape.heads % shape.kv_heads == 0, "shape.kv_heads",
                static_cast<double>(shape.kv_heads), "a divisor of shape.heads");
  fields.window("shape.window", shape.window, shape.causal);
  const bool none_or_odd =
      shape.distances == 0 || (shape.distances > 0 && shape.distances % 2 == 1);
  fields.number(none_or_odd, "shape.distances", static_cast<double>(shape.distances),
                "0 or an odd number");
}

// A bias by distance, or its gradient, which is there where the shape says so.
void check_bias(const FieldCheck& fields, const AttentionShape& shape, const Field& bias) {
  if (shape.distances == 0) return fields.absent(bias, "without shape.distances");
  fields.expect(bias, {shape.heads, shape.distances}, {statistic_type(shape.dtype)},
                "as the shape says");
}

struct Named {
  std::string_view name;
  const Heads& heads;
  std::int64_t columns;
};

// That two outputs share no element; they may share rows.
void check_disjoint(const FieldCheck& fields, const Named& a, const Named& b) {
  const Tensor& first = a.heads.rows;
  const Tensor& second = b.heads.rows;
  if (!overlap(first, second)) return;
  const bool same_rows = first.data() == second.data() && first.shape() == second.shape();
  const bool beside =
      a.heads.first + a.columns <= b.heads.first || b.heads.first + b.columns <= a.heads.first;
  if (same_rows && beside) return;
  fail(ErrorCode::kInvalidArgument,
       "{}: {} and {} share memory, expected different columns of the same rows, or rows apart",
       fields.operation(), a.name, b.name);
}

// q, k, v and the mask, and the shape they agree on.
template <class Op>
void check_inputs(const FieldCheck& fields, const Op& op) {
  const AttentionShape& shape = op.shape;
  check_shape(fields, shape);
  fields.softcap("softcap", op.softcap);
  fields.number(shape.distances == 0 || op.softcap == 0, "softcap", static_cast<double>(op.softcap),
                "0 with a bias");
  fields.dropout(op.dropout);
  const DType type = fields.compute_type({"q", op.q.rows});
  if (type != shape.dtype) {
    fail(ErrorCode::kInvalidArgument, "{}: shape.dtype is {}, expected {} as q is",
         fields.operation(), name(shape.dtype), name(type));
  }
  const std::int64_t query_rows = extents_product(shape.batch, shape.queries);
  const std::int64_t key_rows = extents_product(shape.batch, shape.keys);
  const std::int64_t query_columns = extents_product(shape.heads, shape.head_size);
  const std::int64_t key_columns = extents_product(shape.kv_heads, shape.head_size);
  fields.heads("q", op.q, query_rows, query_columns, type);
  fields.heads("k", op.k, key_rows, key_columns, type);
  fields.heads("v", op.v, key_rows, key_columns, type);
  if (is_given(op.key_mask)) {
    fields.expect({"key_mask", op.key_mask}, {shape.batch, shape.keys}, {DType::kU8},
                  "for every key");
  }
  fields.expect({"out", op.out}, {query_rows, query_columns}, {type}, "as the shape says");
  fields.expect({"log_sum", op.log_sum}, {shape.batch, shape.heads, shape.queries},
                {statistic_type(type)}, "as the shape says");
  check_bias(fields, shape, {"bias", op.bias});
}

// How fast rotary positions turn, of a head with that many elements that do.
template <class Op>
void check_turns(const FieldCheck& fields, const Op& op, std::int64_t turned) {
  const RotaryScaling& scaling = op.scaling;
  fields.number(op.theta > 0, "theta", op.theta, "more than 0");
  fields.number(op.amplitude > 0, "amplitude", op.amplitude, "more than 0");
  if (is_given(op.slowing)) {
    fields.expect_on_host({"slowing", op.slowing}, {turned / 2}, {DType::kF32}, "for every pair");
  }
  fields.number(scaling.factor > 0, "scaling.factor", scaling.factor, "more than 0");
  if (scaling.original_positions <= 0) return;
  fields.number(scaling.high_turns > scaling.low_turns, "scaling.high_turns", scaling.high_turns,
                "more than scaling.low_turns");
}

}  // namespace

void check(const Attention& op, const Accepts& accepts) {
  const FieldCheck fields("attention", accepts);
  check_inputs(fields, op);
  const AttentionShape& shape = op.shape;
  if (is_given(op.probabilities)) {
    fields.expect({"probabilities", op.probabilities},
                  {shape.batch, shape.heads, shape.queries, shape.keys},
                  {statistic_type(shape.dtype)}, "as the shape says");
  }
  const Field q{"q", op.q.rows}, k{"k", op.k.rows}, v{"v", op.v.rows},
      key_mask{"key_mask", op.key_mask}, out{"out", op.out}, log_sum{"log_sum", op.log_sum},
      bias{"bias", op.bias};
  fields.apart(out, {q, k, v, key_mask, log_sum, bias});
  fields.apart(log_sum, {q, k, v, key_mask, bias});
  fields.apart({"probabilities", op.probabilities}, {q, k, v, key_mask, out, log_sum, bias});
}

void check(const AttentionBackward& op, const Accepts& accepts) {
  const FieldCheck fields("attention_backward", accepts);
  check_inputs(fields, op);
  const DType type = op.shape.dtype;
  fields.expect({"dout", op.dout}, op.out.shape(), {type}, "as out is");
  const std::int64_t query_columns = op.shape.heads * op.shape.head_size;
  const std::int64_t key_columns = op.shape.kv_heads * op.shape.head_size;
  const Named gradients[] = {
      {"dq", op.dq, query_columns}, {"dk", op.dk, key_columns}, {"dv", op.dv, key_columns}};
  const std::int64_t query_rows = op.q.rows.shape()[0];
  const std::int64_t key_rows = op.k.rows.shape()[0];
  fields.heads("dq", op.dq, query_rows, query_columns, type);
  fields.heads("dk", op.dk, key_rows, key_columns, type);
  fields.heads("dv", op.dv, key_rows, key_columns, type);
  check_bias(fields, op.shape, {"dbias", op.dbias});
  const auto apart_from_inputs = [&](const Field& gradient) {
    fields.apart(gradient, {{"q", op.q.rows},
                            {"k", op.k.rows},
                            {"v", op.v.rows},
                            {"key_mask", op.key_mask},
                            {"out", op.out},
                            {"log_sum", op.log_sum},
                            {"dout", op.dout},
                            {"bias", op.bias}});
  };
  for (const Named& gradient : gradients) {
    apart_from_inputs({gradient.name, gradient.heads.rows});
    fields.apart({"dbias", op.dbias}, {{gradient.name, gradient.heads.rows}});
  }
  apart_from_inputs({"dbias", op.dbias});
  check_disjoint(fields, gradients[0], gradients[1]);
  check_disjoint(fields, gradients[0], gradients[2]);
  check_disjoint(fields, gradients[1], gradients[2]);
}

void check(const MergeAttention& op, const Accepts& accepts) {
  const FieldCheck fields("merge_attention", accepts);
  const DType type = fields.compute_type({"more", op.more});
  fields.expect({"more", op.more}, {kAny, kAny}, {type});
  const std::int64_t queries = op.more.shape()[0];
  const std::int64_t columns = op.more.shape()[1];
  fields.number(op.heads >= 1 && columns % op.heads == 0, "heads", static_cast<double>(op.heads),
                "a divisor of the columns of more");
  const DType statistics = statistic_type(type);
  fields.expect({"out", op.out}, {queries, columns}, {statistics}, "as more is");
  fields.expect({"log_sum", op.log_sum}, {op.heads, queries}, {statistics}, "for every query");
  fields.expect({"more_log_sum", op.more_log_sum}, {op.heads, queries}, {statistics},
                "for every query");
  const Field more{"more", op.more}, more_log_sum{"more_log_sum", op.more_log_sum},
      log_sum{"log_sum", op.log_sum};
  fields.apart({"out", op.out}, {more, more_log_sum, log_sum});
  fields.apart(log_sum, {more, more_log_sum});
}

void check(const CopyColumns& op, const Accepts& accepts) {
  const FieldCheck fields("copy_columns", accepts);
  const DType from = fields.compute_type({"from", op.from.rows});
  const DType to = fields.compute_type({"to", op.to.rows});
  fields.expect({"from", op.from.rows}, {kAny, kAny}, {from});
  fields.expect({"to", op.to.rows}, {op.from.rows.shape()[0], kAny}, {to}, "as from is");
  fields.number(op.columns >= 0, "columns", static_cast<double>(op.columns), "0 or more");
  fields.columns("from", op.from, op.columns);
  fields.columns("to", op.to, op.columns);
  fields.apart({"to", op.to.rows}, {{"from", op.from.rows}});
}

void check(const Rotary& op, const Accepts& accepts) {
  const FieldCheck fields("rotary", accepts);
  const DType type = fields.compute_type({"x", op.x.rows});
  fields.expect({"x", op.x.rows}, {kAny, kAny}, {type});
  fields.number(op.heads >= 1, "heads", static_cast<double>(op.heads), "1 or more");
  fields.number(op.head_size >= 2 && op.head_size % 2 == 0, "head_size",
                static_cast<double>(op.head_size), "an even number, 2 or more");
  fields.number(op.sequence >= 1, "sequence", static_cast<double>(op.sequence), "1 or more");
  fields.number(op.first_position >= 0, "first_position", static_cast<double>(op.first_position),
                "0 or more");
  check_turns(fields, op, op.head_size);
  const std::int64_t stride = op.stride > 0 ? op.stride : op.head_size;
  fields.partial_rotary("head_size", op.head_size, stride);
  fields.columns("x", op.x, extents_product(op.heads, stride));
}

void check(const DecodeAttention& op, const Accepts& accepts) {
  const FieldCheck fields("decode_attention", accepts);
  const auto positive = [&](std::string_view field, std::int64_t value) {
    fields.number(value >= 1, field, static_cast<double>(value), "1 or more");
  };
  positive("heads", op.heads);
  positive("kv_heads", op.kv_heads);
  positive("head_size", op.head_size);
  fields.number(op.heads % op.kv_heads == 0, "kv_heads", static_cast<double>(op.kv_heads),
                "a divisor of heads");
  fields.softcap("softcap", op.softcap);
  fields.window("window", op.window, true);
  if (op.rotary) {
    const std::int64_t turned = op.rotary_size > 0 ? op.rotary_size : op.head_size;
    fields.number(turned % 2 == 0, "head_size", static_cast<double>(turned),
                  "an even number for rotary positions");
    fields.partial_rotary("rotary_size", turned, op.head_size);
    check_turns(fields, op, turned);
  }
  const DType type = fields.compute_type({"packed", op.packed});
  const std::int64_t query_columns = extents_product(op.heads, op.head_size);
  const std::int64_t key_columns = extents_product(op.kv_heads, op.head_size);
  fields.expect({"packed", op.packed}, {kAny, query_columns + 2 * key_columns}, {type},
                "as the heads say");
  const std::int64_t batch = op.packed.shape()[0];
  fields.expect({"cache", op.cache}, {batch, kAny, 2 * key_columns}, {type}, "as the heads say");
  fields.expect({"out", op.out}, {batch, query_columns}, {type}, "as the heads say");
  fields.expect({"lengths", op.lengths}, {batch}, {DType::kI32}, "for every sequence");
  const Field packed{"packed", op.packed}, cache{"cache", op.cache}, lengths{"lengths", op.lengths};
  fields.apart(cache, {packed, lengths});
  fields.apart({"out", op.out}, {packed, cache, lengths});
}

namespace {

// A table of buckets and all heads, and biases of some of these.
void check_relative_bias(const FieldCheck& fields, const RelativeBuckets& buckets,
                         const Field& table, const Field& bias, std::int64_t first_head) {
  fields.number(are_valid(buckets), "buckets.count", static_cast<double>(buckets.count),
                "an even number of 4 or more, less than twice buckets.max_distance");
  const DType type = fields.compute_type(table);
  fields.expect(table, {buckets.count, kAny}, {type}, "for every bucket");
  fields.expect(bias, {kAny, buckets.distances()}, {statistic_type(type)}, "for every distance");
  const std::int64_t heads = bias.tensor.shape()[0];
  fields.number(first_head >= 0 && first_head <= table.tensor.shape()[1] - heads, "first_head",
                static_cast<double>(first_head), "the first of heads that the table has");
}

}  // namespace

void check(const RelativeBias& op, const Accepts& accepts) {
  const FieldCheck fields("relative_bias", accepts);
  const Field table{"table", op.table}, bias{"bias", op.bias};
  check_relative_bias(fields, op.buckets, table, bias, op.first_head);
  fields.apart(bias, {table});
}

void check(const RelativeBiasBackward& op, const Accepts& accepts) {
  const FieldCheck fields("relative_bias_backward", accepts);
  const Field dtable{"dtable", op.dtable}, dbias{"dbias", op.dbias};
  check_relative_bias(fields, op.buckets, dtable, dbias, op.first_head);
  fields.apart(dtable, {dbias});
}

}  // namespace lockstep::ops
