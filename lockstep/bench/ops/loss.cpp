#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

constexpr double kFactor = 0.75;  // a float, so that finite differences see the same

// Gradients are probabilities, most of them tiny, so they are measured by their own size.
double relative_of_exp(DType dtype) { return is_narrow(dtype) ? 2 : 64; }

OpCase cross_entropy_case(DType dtype, std::int64_t rows, std::int64_t classes, bool gradient) {
  OpCase one;
  one.name = fmt::format("{} x {}{}", rows, classes, gradient ? ", gradient" : "");
  const Shape shape{rows, classes};
  one.fields = {input("targets", DType::kI32, {rows}, targets(classes)),
                output("losses", statistic(dtype), {rows}, {.relative = 8, .noise = 64})};
  if (gradient) {
    one.fields.push_back(updated("logits", dtype, shape, normal(2),
                                 {.relative = relative_of_exp(dtype), .noise = 1}, Freedom::kLast));
  } else {
    one.fields.push_back(input("logits", dtype, shape, normal(2), Freedom::kLast));
  }
  const auto run = [](Ops& ops, const Tensor& logits, const Tensors& t, bool with_gradient) {
    ops.run(ops::CrossEntropy{.logits = logits,
                              .targets = t["targets"],
                              .losses = t["losses"],
                              .gradient = with_gradient,
                              .factor = static_cast<float>(kFactor)});
  };
  one.run = [run, gradient](Ops& ops, const Tensors& t) { run(ops, t["logits"], t, gradient); };
  if (gradient || classes > 1000) return one;
  one.gradient = Gradient{.inputs = {"logits"},
                          .outputs = {"losses"},
                          .backward =
                              [run](Ops& ops, const Tensors& t) {
                                copy(t["dlogits"], t["logits"]);
                                run(ops, t["dlogits"], t, true);
                              },
                          .weight = kFactor};
  return one;
}

std::vector<OpCase> cross_entropy_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const auto& [rows, classes] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {3, 17}, {17, 3}, {0, 7}, {5, 64}, {31, 131}, {3, 50257}}) {
    cases.push_back(cross_entropy_case(dtype, rows, classes, true));
    cases.push_back(cross_entropy_case(dtype, rows, classes, false));
  }
  return cases;
}

OpCase cross_entropy_typical(DType dtype) {
  return cross_entropy_case(dtype, Typical::kLogitRows, Typical::kVocabulary, true);
}

// As many rows as take a gigabyte or so in 16 bits.
std::vector<OpCase> cross_entropy_large(DType dtype) {
  return {cross_entropy_case(dtype, 8192, Large::kPaddedVocabulary, true),
          cross_entropy_case(dtype, 4096, Large::kLlamaVocabulary, true)};
}

enum class DxIs { kNone, kApart, kX };

OpCase squared_error_case(DType dtype, std::int64_t rows, std::int64_t width, DxIs dx) {
  OpCase one;
  one.name = fmt::format("{} x {}{}", rows, width,
                         dx == DxIs::kNone    ? ""
                         : dx == DxIs::kApart ? ", gradient"
                                              : ", gradient in place");
  const Shape shape{rows, width};
  const double root = std::sqrt(static_cast<double>(width));
  const Tolerance of_dx{.relative = 4, .noise = 8};
  one.fields = {input("target", dtype, shape, normal()),
                dx == DxIs::kX ? updated("x", dtype, shape, normal(), of_dx)
                               : input("x", dtype, shape, normal()),
                output("losses", statistic(dtype), {rows}, {.relative = 8 + 4 * root})};
  if (dx == DxIs::kApart) one.fields.push_back(output("dx", dtype, shape, of_dx));
  const auto run = [](Ops& ops, const Tensors& t, const Tensor& gradient) {
    ops.run(ops::SquaredError{.x = t["x"],
                              .target = t["target"],
                              .losses = t["losses"],
                              .dx = gradient,
                              .factor = static_cast<float>(kFactor)});
  };
  one.run = [run, dx](Ops& ops, const Tensors& t) {
    run(ops, t, dx == DxIs::kX ? t["x"] : t["dx"]);
  };
  if (dx == DxIs::kNone) {
    one.gradient = Gradient{.inputs = {"x"},
                            .outputs = {"losses"},
                            .backward = [run](Ops& ops, const Tensors& t) { run(ops, t, t["dx"]); },
                            .weight = kFactor};
  }
  return one;
}

std::vector<OpCase> squared_error_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const auto& [rows, width] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {3, 17}, {17, 3}, {0, 7}, {5, 64}, {31, 131}, {1031, 1}}) {
    for (const DxIs dx : {DxIs::kNone, DxIs::kApart, DxIs::kX}) {
      cases.push_back(squared_error_case(dtype, rows, width, dx));
    }
  }
  return cases;
}

OpCase squared_error_typical(DType dtype) {
  return squared_error_case(dtype, Typical::kRows, Typical::kWidth, DxIs::kApart);
}
std::vector<OpCase> squared_error_large(DType dtype) {
  return {squared_error_case(dtype, Large::kRows, Typical::kWidth, DxIs::kApart)};
}

}  // namespace

std::vector<OpDescription> describe_loss() {
  return {{"cross_entropy",
           cross_entropy_cases,
           cross_entropy_typical,
           {cross_entropy_large, kRowsBar}},
          {"squared_error", squared_error_cases, squared_error_typical, {squared_error_large}}};
}

}  // namespace lockstep::bench
