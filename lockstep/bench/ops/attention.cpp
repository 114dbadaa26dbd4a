#include "lockstep/bench/ops/attention.h"

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

using ops::AttentionShape;
using ops::Heads;

// q, k and v; with the prefix "d" their gradients.
struct HeadSet {
  Heads q, k, v;
};
HeadSet heads_of(const AttentionOptions& options, const Tensors& t, const std::string& prefix) {
  if (!options.packed) {
    return {{t[prefix + "q"], 0}, {t[prefix + "k"], 0}, {t[prefix + "v"], 0}};
  }
  const Tensor rows = t[prefix + "qkv"];
  return {{rows, 0}, {rows, options.first_key()}, {rows, options.first_value()}};
}

struct HeadField {
  std::string name;
  Shape shape;
};
std::vector<HeadField> head_fields(const AttentionOptions& options) {
  const AttentionShape& shape = options.shape;
  if (options.packed) {
    return {{"qkv", {shape.batch * shape.queries, options.first_value() + options.key_columns()}}};
  }
  const Shape keys{shape.batch * shape.keys, options.key_columns()};
  return {{"q", options.query_rows()}, {"k", keys}, {"v", keys}};
}

Shape bias_shape(const AttentionOptions& options) {
  return {options.shape.heads, options.shape.distances};
}

std::vector<OpField> attention_inputs(const AttentionOptions& options) {
  std::vector<OpField> fields;
  for (const HeadField& field : head_fields(options)) {
    fields.push_back(input(field.name, options.shape.dtype, field.shape, normal(), Freedom::kLast));
  }
  if (options.mask) {
    fields.push_back(
        input("key_mask", DType::kU8, {options.shape.batch, options.shape.keys}, mask(0.7)));
  }
  if (options.shape.distances > 0) {
    fields.push_back(input("bias", statistic(options.shape.dtype), bias_shape(options), normal()));
  }
  return fields;
}

// Of the two products of forward, 2 q k head_size each.
double attention_flops(const AttentionShape& shape) {
  const double all = 4 * static_cast<double>(shape.batch * shape.heads) *
                     static_cast<double>(shape.queries) * static_cast<double>(shape.keys) *
                     static_cast<double>(shape.head_size);
  if (shape.window == 0) return shape.causal ? all / 2 : all;
  const double keys = static_cast<double>(shape.keys);
  return all / keys * std::min(keys / 2, static_cast<double>(shape.window));
}

void run_attention(Ops& ops, const Tensors& t, const AttentionOptions& options) {
  const HeadSet heads = heads_of(options, t, "");
  ops.run(ops::Attention{.shape = options.shape,
                         .scale = options.scale(),
                         .softcap = options.softcap,
                         .q = heads.q,
                         .k = heads.k,
                         .v = heads.v,
                         .key_mask = t["key_mask"],
                         .dropout = options.dropping(),
                         .out = t["out"],
                         .log_sum = t["log_sum"],
                         .probabilities = t["probabilities"],
                         .bias = t["bias"]});
}

void run_attention_backward(Ops& ops, const Tensors& t, const AttentionOptions& options) {
  const HeadSet heads = heads_of(options, t, "");
  const HeadSet gradients = heads_of(options, t, "d");
  ops.run(ops::AttentionBackward{.shape = options.shape,
                                 .scale = options.scale(),
                                 .softcap = options.softcap,
                                 .q = heads.q,
                                 .k = heads.k,
                                 .v = heads.v,
                                 .key_mask = t["key_mask"],
                                 .dropout = options.dropping(),
                                 .out = t["out"],
                                 .log_sum = t["log_sum"],
                                 .dout = t["dout"],
                                 .dq = gradients.q,
                                 .dk = gradients.k,
                                 .dv = gradients.v,
                                 .bias = t["bias"],
                                 .dbias = t["dbias"]});
}

Shape log_sum_shape(const AttentionShape& shape) {
  return {shape.batch, shape.heads, shape.queries};
}

// What peers are asked for; none where they would have to do more.
std::optional<AttentionShape> plain_shape(const AttentionOptions& options) {
  if (options.mask || options.dropout > 0 || options.probabilities || options.shape.window > 0 ||
      options.softcap > 0 || options.shape.distances > 0) {
    return std::nullopt;
  }
  return options.shape;
}

auto attention_scratch(const AttentionShape& shape) {
  return [shape](const Ops& ops) { return ops.scratch(shape); };
}

}  // namespace

OpCase attention_case(const AttentionOptions& options) {
  OpCase one;
  const AttentionShape& shape = options.shape;
  one.name = options.text();
  one.fields = attention_inputs(options);
  // Probabilities may be rounded to the compute type before they meet the values.
  const double noise = 64 + 8 * std::sqrt(static_cast<double>(shape.keys + shape.head_size));
  one.fields.push_back(
      output("out", shape.dtype, options.query_rows(), {.noise = noise, .coarse = 8}));
  const DType statistics = statistic(shape.dtype);
  one.fields.push_back(output("log_sum", statistics, log_sum_shape(shape), {.noise = noise}));
  if (options.probabilities) {
    one.fields.push_back(output("probabilities", statistics,
                                {shape.batch, shape.heads, shape.queries, shape.keys},
                                {.relative = 64, .noise = 16}));
  }
  one.run = [options](Ops& ops, const Tensors& t) { run_attention(ops, t, options); };
  one.scratch = attention_scratch(shape);
  one.flops = attention_flops(shape);
  one.attention = plain_shape(options);
  Gradient gradient{.outputs = {"out"}};
  for (const HeadField& field : head_fields(options)) gradient.inputs.push_back(field.name);
  if (shape.distances > 0) {
    gradient.inputs.push_back("bias");
  }
  gradient.backward = [options](Ops& ops, const Tensors& t) {
    run_attention_backward(ops, t, options);
  };
  one.gradient = gradient;
  return one;
}

OpCase attention_backward_case(const AttentionOptions& options) {
  OpCase one;
  const AttentionShape& shape = options.shape;
  one.name = options.text();
  one.fields = attention_inputs(options);
  one.fields.push_back(input("out", shape.dtype, options.query_rows(), normal()));
  one.fields.push_back(input("log_sum", statistic(shape.dtype), log_sum_shape(shape), normal()));
  one.fields.push_back(input("dout", shape.dtype, options.query_rows(), normal()));
  // Probabilities and their gradients may be rounded to the compute type before they meet queries,
  // keys and gradients, and out is what it was rounded to.
  const double length = static_cast<double>(shape.keys + shape.queries + shape.head_size);
  const Tolerance tolerance{.relative = 8, .noise = 256 + 32 * std::sqrt(length), .coarse = 48};
  for (const HeadField& field : head_fields(options)) {
    one.fields.push_back(
        output("d" + field.name, shape.dtype, field.shape, tolerance, Freedom::kLast));
  }
  if (shape.distances > 0) {
    // A sum over all that are so far from each other.
    const double terms = static_cast<double>(shape.batch * shape.queries * shape.keys);
    one.fields.push_back(
        output("dbias", statistic(shape.dtype), bias_shape(options),
               {.relative = 8, .noise = 64 + 16 * std::sqrt(terms), .coarse = 48}));
  }
  one.prepare = [options](Ops& ops, const Tensors& t) { run_attention(ops, t, options); };
  one.run = [options](Ops& ops, const Tensors& t) { run_attention_backward(ops, t, options); };
  one.scratch = attention_scratch(shape);
  one.flops = 2.5 * attention_flops(shape);  // five products for two
  one.attention = plain_shape(options);
  return one;
}

namespace {

std::vector<AttentionOptions> odd_attentions(DType dtype) {
  const auto shape = [dtype](std::int64_t batch, std::int64_t queries, std::int64_t keys,
                             std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size,
                             bool causal) {
    return AttentionShape{batch, queries, keys, heads, kv_heads, head_size, causal, dtype};
  };
  return {
      {.shape = shape(1, 1, 1, 1, 1, 1, true)},
      {.shape = shape(2, 3, 3, 1, 1, 4, false)},
      {.shape = shape(1, 17, 17, 3, 3, 5, true), .packed = true},
      {.shape = shape(2, 13, 13, 2, 2, 8, false), .mask = true, .probabilities = true},
      {.shape = shape(2, 19, 19, 4, 2, 16, true), .mask = true, .packed = true},
      {.shape = shape(1, 7, 23, 6, 2, 8, false), .mask = true},          // cross
      {.shape = shape(1, 5, 11, 2, 1, 3, true), .probabilities = true},  // later queries
      {.shape = shape(1, 11, 5, 2, 1, 3, true)},                         // some see nothing
      {.shape = shape(2, 9, 9, 2, 2, 8, true), .dropout = 0.2, .probabilities = true},
      {.shape = shape(1, 6, 10, 2, 1, 4, false), .mask = true, .dropout = 0.5},
      {.shape = shape(0, 4, 4, 1, 1, 2, true)},
      {.shape = shape(2, 0, 4, 1, 1, 2, false)},
      {.shape = shape(2, 4, 0, 1, 1, 2, false)},
      {.shape = shape(1, 67, 67, 2, 2, 64, true), .packed = true},
      {.shape = shape(1, 131, 131, 2, 1, 32, true), .mask = true, .dropout = 0.1},
      {.shape = shape(1, 70, 150, 1, 1, 80, false)},
      {.shape = shape(1, 1, 1, 1, 1, 1, true), .softcap = 1},
      {.shape = shape(1, 17, 17, 3, 3, 5, true), .packed = true, .softcap = 0.5},
      {.shape = shape(2, 19, 19, 4, 2, 16, true),
       .mask = true,
       .probabilities = true,
       .softcap = 1.5},
      {.shape = shape(1, 7, 23, 6, 2, 8, false), .mask = true, .dropout = 0.3, .softcap = 2},
      {.shape = shape(1, 11, 5, 2, 1, 3, true), .softcap = 1},  // some see nothing
      {.shape = shape(1, 131, 131, 2, 1, 32, true), .mask = true, .dropout = 0.1, .softcap = 50},
  };
}

std::vector<OpCase> forward_cases(const std::vector<AttentionOptions>& all) {
  std::vector<OpCase> cases;
  for (const AttentionOptions& options : all) cases.push_back(attention_case(options));
  return cases;
}

// Backward computes no probabilities.
std::vector<OpCase> backward_cases(const std::vector<AttentionOptions>& all) {
  std::vector<OpCase> cases;
  for (AttentionOptions options : all) {
    options.probabilities = false;
    cases.push_back(attention_backward_case(options));
  }
  return cases;
}

std::vector<OpCase> attention_cases(DType dtype) { return forward_cases(odd_attentions(dtype)); }

std::vector<OpCase> attention_backward_cases(DType dtype) {
  return backward_cases(odd_attentions(dtype));
}

// ---- attention_row: one query, as in generating text

std::vector<OpCase> attention_row_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const AttentionOptions& options :
       {AttentionOptions{.shape = {1, 1, 1, 1, 1, 1, true, dtype}},
        {.shape = {1, 1, 131, 6, 2, 16, true, dtype}},
        {.shape = {2, 1, 17, 4, 1, 7, true, dtype}, .mask = true},
        {.shape = {3, 1, 67, 2, 2, 80, false, dtype}, .mask = true},
        {.shape = {1, 1, 5, 2, 1, 131, true, dtype}},
        {.shape = {2, 1, 0, 2, 1, 3, true, dtype}},
        {.shape = {1, 1, 1, 3, 3, 64, true, dtype}, .packed = true},
        {.shape = {2, 1, 17, 4, 1, 7, true, dtype}, .mask = true, .softcap = 1.5},
        {.shape = {1, 1, 131, 6, 2, 16, true, dtype}, .softcap = 50}}) {
    cases.push_back(attention_case(options));
  }
  return cases;
}

// ---- attention_bias: scores have a bias by the distance of key and query

std::vector<AttentionOptions> odd_biases(DType dtype) {
  const auto shape = [dtype](std::int64_t batch, std::int64_t queries, std::int64_t keys,
                             std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size,
                             bool causal, std::int64_t distances) {
    return AttentionShape{batch,     queries, keys,  heads, kv_heads,
                          head_size, causal,  dtype, 0,     distances};
  };
  return {
      {.shape = shape(1, 1, 1, 1, 1, 1, true, 1)},
      {.shape = shape(2, 17, 17, 3, 3, 5, true, 9), .packed = true},
      {.shape = shape(2, 13, 13, 2, 2, 8, false, 257), .mask = true, .probabilities = true},
      {.shape = shape(2, 19, 19, 4, 2, 16, false, 5), .mask = true, .packed = true},
      {.shape = shape(1, 5, 11, 2, 1, 3, true, 7), .probabilities = true},  // later queries
      {.shape = shape(1, 11, 5, 2, 1, 3, true, 7)},                         // some see nothing
      {.shape = shape(2, 9, 9, 2, 2, 8, false, 3), .dropout = 0.2, .probabilities = true},
      {.shape = shape(0, 4, 4, 1, 1, 2, true, 3)},
      {.shape = shape(2, 0, 4, 1, 1, 2, false, 3)},
      {.shape = shape(2, 4, 0, 1, 1, 2, false, 3)},
      {.shape = shape(2, 1, 1, 2, 2, 8, false, 5)},
      {.shape = shape(1, 1, 131, 6, 2, 16, true, 33)},  // one query
      {.shape = shape(1, 67, 67, 2, 2, 64, true, 41), .packed = true},
      {.shape = shape(1, 131, 131, 2, 1, 32, true, 257), .mask = true, .dropout = 0.1},
      {.shape = shape(3, 150, 150, 1, 1, 64, false, 61), .mask = true},
      {.shape = shape(1, 70, 150, 1, 1, 80, false, 101)},
      // Tiles of GPUs have 32, 64 or 128 queries and keys.
      {.shape = shape(1, 64, 64, 2, 2, 16, false, 1)},
      {.shape = shape(1, 33, 65, 4, 2, 24, false, 255), .mask = true},
      {.shape = shape(2, 129, 127, 2, 1, 64, true, 63)},
      {.shape = shape(1, 128, 192, 2, 2, 128, true, 129), .mask = true},
      {.shape = shape(1, 70, 40, 2, 1, 96, false, 31)},
      {.shape = shape(1, 66, 66, 1, 1, 136, true, 65), .packed = true},
      {.shape = shape(1, 200, 200, 2, 1, 8, false, 1001), .dropout = 0.3, .packed = true},
  };
}

std::vector<OpCase> attention_bias_cases(DType dtype) { return forward_cases(odd_biases(dtype)); }

std::vector<OpCase> attention_bias_backward_cases(DType dtype) {
  return backward_cases(odd_biases(dtype));
}

AttentionOptions typical_bias(DType dtype) {
  constexpr std::int64_t kDistances = 257;  // T5's
  return {.shape = {Typical::kBatch, Typical::kSequence, Typical::kSequence, Typical::kHeads,
                    Typical::kHeads, Typical::kHeadSize, false, dtype, 0, kDistances},
          .packed = true,
          .gap = 0};
}

OpCase attention_bias_typical(DType dtype) { return attention_case(typical_bias(dtype)); }
OpCase attention_bias_backward_typical(DType dtype) {
  return attention_backward_case(typical_bias(dtype));
}

// ---- attention_window: each query sees the last keys before it

std::vector<AttentionOptions> odd_windows(DType dtype) {
  const auto shape = [dtype](std::int64_t batch, std::int64_t queries, std::int64_t keys,
                             std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size,
                             std::int64_t window) {
    return AttentionShape{batch, queries, keys, heads, kv_heads, head_size, true, dtype, window};
  };
  return {
      {.shape = shape(1, 1, 1, 1, 1, 1, 1)},
      {.shape = shape(2, 17, 17, 3, 3, 5, 1), .packed = true},  // each sees itself
      {.shape = shape(1, 19, 19, 4, 2, 16, 7), .mask = true, .packed = true},
      {.shape = shape(1, 5, 11, 2, 1, 3, 4), .probabilities = true},  // later queries
      {.shape = shape(1, 11, 5, 2, 1, 3, 2)},                         // some see nothing
      {.shape = shape(2, 9, 9, 2, 2, 8, 3), .dropout = 0.2, .probabilities = true},
      {.shape = shape(1, 131, 131, 2, 1, 32, 63), .mask = true, .dropout = 0.1},
      {.shape = shape(1, 200, 200, 2, 2, 64, 65), .packed = true},
      {.shape = shape(1, 150, 220, 1, 1, 80, 64)},
      {.shape = shape(1, 1, 131, 6, 2, 16, 50)},  // one query
      {.shape = shape(1, 9, 9, 2, 2, 8, 100)},    // wider than the sequence
      {.shape = shape(1, 5, 11, 2, 1, 3, 4), .softcap = 1},
      {.shape = shape(1, 200, 200, 2, 2, 64, 65), .packed = true, .softcap = 3},
      {.shape = shape(1, 1, 131, 6, 2, 16, 50), .softcap = 1.5},
  };
}

std::vector<OpCase> attention_window_cases(DType dtype) {
  return forward_cases(odd_windows(dtype));
}

std::vector<OpCase> attention_window_backward_cases(DType dtype) {
  return backward_cases(odd_windows(dtype));
}

AttentionOptions typical_window(DType dtype) {
  return {.shape = {Typical::kBatch, Typical::kSequence, Typical::kSequence, Typical::kHeads,
                    Typical::kHeads, Typical::kHeadSize, true, dtype, Typical::kSequence / 4},
          .packed = true,
          .gap = 0};
}

OpCase attention_window_typical(DType dtype) { return attention_case(typical_window(dtype)); }
OpCase attention_window_backward_typical(DType dtype) {
  return attention_backward_case(typical_window(dtype));
}

OpCase attention_row_typical(DType dtype) {
  return attention_case({.shape = {1, 1, Typical::kSequence, Typical::kHeads, Typical::kHeads,
                                   Typical::kHeadSize, false, dtype}});
}

AttentionOptions typical_attention(DType dtype) {
  return {.shape = {Typical::kBatch, Typical::kSequence, Typical::kSequence, Typical::kHeads,
                    Typical::kHeads, Typical::kHeadSize, true, dtype},
          .packed = true,
          .gap = 0};
}

OpCase attention_typical(DType dtype) { return attention_case(typical_attention(dtype)); }
OpCase attention_backward_typical(DType dtype) {
  return attention_backward_case(typical_attention(dtype));
}

// 1k to 8k tokens, all causal.
std::vector<AttentionOptions> large_attentions(DType dtype) {
  std::vector<AttentionOptions> all;
  const auto add = [&](std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                       std::int64_t kv_heads, std::int64_t head_size) {
    all.push_back({.shape = {batch, sequence, sequence, heads, kv_heads, head_size, true, dtype},
                   .packed = true,
                   .gap = 0});
  };
  add(Large::kBatch, Typical::kSequence, Typical::kHeads, Typical::kHeads, Typical::kHeadSize);
  add(32, 1024, 16, 16, 64);
  add(16, 2048, 16, 16, 64);
  add(Large::kLlamaBatch, Large::kLlamaSequence, Large::kLlamaHeads, Large::kLlamaKvHeads,
      Large::kLlamaHeadSize);
  add(2, 8192, 16, 16, 64);
  add(32, 1024, 16, 16, 128);
  add(Large::kLlamaBatch, Large::kLlamaSequence, Large::kLlamaHeads, Large::kLlamaKvHeads, 128);
  add(8, 4096, 16, 16, 128);
  add(2, 8192, 16, 16, 128);
  return all;
}

std::vector<OpCase> attention_large(DType dtype) {
  std::vector<OpCase> cases;
  for (const AttentionOptions& options : large_attentions(dtype)) {
    cases.push_back(attention_case(options));
  }
  return cases;
}
std::vector<OpCase> attention_backward_large(DType dtype) {
  std::vector<OpCase> cases;
  for (const AttentionOptions& options : large_attentions(dtype)) {
    cases.push_back(attention_backward_case(options));
  }
  return cases;
}
std::vector<OpCase> attention_row_large(DType dtype) {
  OpCase one = attention_case({.shape = {8, 1, Large::kLlamaSequence, Large::kLlamaHeads,
                                         Large::kLlamaKvHeads, 128, false, dtype}});
  one.attention.reset();  // training's kernels of peers are not made for it
  return {one};
}

// A window of a quarter of the sequences.
AttentionOptions large_window(DType dtype) {
  return {.shape = {Large::kLlamaBatch, Large::kLlamaSequence, Large::kLlamaSequence,
                    Large::kLlamaHeads, Large::kLlamaKvHeads, 128, true, dtype,
                    Large::kLlamaSequence / 4},
          .packed = true,
          .gap = 0};
}

std::vector<OpCase> attention_window_large(DType dtype) {
  return {attention_case(large_window(dtype))};
}
std::vector<OpCase> attention_window_backward_large(DType dtype) {
  return {attention_backward_case(large_window(dtype))};
}

std::vector<OpCase> attention_bias_large(DType dtype) { return {attention_bias_typical(dtype)}; }
std::vector<OpCase> attention_bias_backward_large(DType dtype) {
  return {attention_bias_backward_typical(dtype)};
}

}  // namespace

std::vector<OpDescription> describe_attention() {
  return {{"attention", attention_cases, attention_typical, {attention_large}},
          {"attention_row",
           attention_row_cases,
           attention_row_typical,
           {attention_row_large},
           "attention"},
          {"attention_window",
           attention_window_cases,
           attention_window_typical,
           {attention_window_large},
           "attention"},
          {"attention_bias",
           attention_bias_cases,
           attention_bias_typical,
           {attention_bias_large},
           "attention"},
          {"attention_backward",
           attention_backward_cases,
           attention_backward_typical,
           {attention_backward_large}},
          {"attention_bias_backward",
           attention_bias_backward_cases,
           attention_bias_backward_typical,
           {attention_bias_backward_large},
           "attention_backward"},
          {"attention_window_backward",
           attention_window_backward_cases,
           attention_window_backward_typical,
           {attention_window_backward_large},
           "attention_backward"}};
}

}  // namespace lockstep::bench
