// The bias of attention by distance, from a table of buckets (ops/relative_bias.h).
#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

struct Biases {
  ops::RelativeBuckets buckets;
  std::int64_t heads = 1;
  std::int64_t all_heads = 1;
  std::int64_t first_head = 0;

  Shape table() const { return {buckets.count, all_heads}; }
  Shape bias() const { return {heads, buckets.distances()}; }
  // One more head is there, too.
  Freedom freedom() const {
    return first_head + heads < all_heads ? Freedom::kFirst : Freedom::kNone;
  }
  std::string text() const {
    return fmt::format("{} buckets up to {}{}, heads {} to {} of {}", buckets.count,
                       buckets.max_distance, buckets.bidirectional ? " of both sides" : "",
                       first_head, first_head + heads, all_heads);
  }
};

constexpr Biases kOddBiases[] = {{{4, 3, false}, 1, 1, 0},   {{4, 3, true}, 2, 3, 1},
                                 {{6, 7, true}, 3, 3, 0},    {{10, 20, false}, 5, 7, 2},
                                 {{32, 128, true}, 4, 4, 0}, {{32, 128, false}, 0, 4, 4}};

// T5-large's.
constexpr Biases kTypicalBiases = {{32, 128, true}, 16, 16, 0};

OpCase bias_case(DType dtype, const Biases& biases) {
  OpCase one;
  one.name = biases.text();
  one.fields = {input("table", dtype, biases.table(), normal(), Freedom::kLast),
                output("bias", statistic(dtype), biases.bias(), {.relative = 0}, biases.freedom())};
  one.run = [biases](Ops& ops, const Tensors& t) {
    ops.run(ops::RelativeBias{.buckets = biases.buckets,
                              .table = t["table"],
                              .first_head = biases.first_head,
                              .bias = t["bias"]});
  };
  one.gradient = Gradient{
      .inputs = {"table"}, .outputs = {"bias"}, .backward = [biases](Ops& ops, const Tensors& t) {
        ops.run(ops::RelativeBiasBackward{.buckets = biases.buckets,
                                          .dbias = t["dbias"],
                                          .first_head = biases.first_head,
                                          .dtable = t["dtable"]});
      }};
  return one;
}

OpCase bias_backward_case(DType dtype, DType gradient, const Biases& biases) {
  OpCase one;
  one.name = fmt::format("{}, gradients in {}", biases.text(), name(gradient));
  one.fields = {
      input("dbias", statistic(dtype), biases.bias(), normal(), biases.freedom()),
      updated("dtable", gradient, biases.table(), normal(), {.relative = 0}, Freedom::kLast)};
  one.run = [biases](Ops& ops, const Tensors& t) {
    ops.run(ops::RelativeBiasBackward{.buckets = biases.buckets,
                                      .dbias = t["dbias"],
                                      .first_head = biases.first_head,
                                      .dtable = t["dtable"]});
  };
  return one;
}

std::vector<OpCase> bias_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Biases& biases : kOddBiases) cases.push_back(bias_case(dtype, biases));
  return cases;
}

std::vector<OpCase> bias_backward_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Biases& biases : kOddBiases) {
    cases.push_back(bias_backward_case(dtype, dtype, biases));
    if (is_narrow(dtype)) cases.push_back(bias_backward_case(dtype, DType::kF32, biases));
  }
  return cases;
}

OpCase bias_typical(DType dtype) { return bias_case(dtype, kTypicalBiases); }
OpCase bias_backward_typical(DType dtype) {
  return bias_backward_case(dtype, dtype, kTypicalBiases);
}
std::vector<OpCase> bias_large(DType dtype) { return {bias_typical(dtype)}; }
std::vector<OpCase> bias_backward_large(DType dtype) { return {bias_backward_typical(dtype)}; }

}  // namespace

std::vector<OpDescription> describe_relative_bias() {
  return {{"relative_bias", bias_cases, bias_typical, {bias_large}},
          {"relative_bias_backward",
           bias_backward_cases,
           bias_backward_typical,
           {bias_backward_large}}};
}

}  // namespace lockstep::bench
