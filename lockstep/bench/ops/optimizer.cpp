#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr std::int64_t kOddCounts[] = {0, 1, 3, 17, 64, 131, 1031};

// Gradients of the type, or of f32 where the master is f32 too and only parameters are narrow.
struct StepTypes {
  DType gradient;
  bool parameter;  // of the compute type
};

std::vector<StepTypes> step_types(DType dtype) {
  if (!is_narrow(dtype)) return {{kF32, false}};
  return {{dtype, true}, {kF32, true}, {dtype, false}};
}

std::vector<OpField> step_fields(DType dtype, std::int64_t count, const StepTypes& types) {
  std::vector<OpField> fields = {
      updated("master", kF32, {count}, normal(), {.relative = 2, .noise = 4}, Freedom::kElements),
      input("gradient", types.gradient, {count}, normal(), Freedom::kElements)};
  if (types.parameter) {
    fields.push_back(output("parameter", dtype, {count}, {.noise = 4}, Freedom::kElements));
  }
  return fields;
}

std::string step_text(DType dtype, std::int64_t count, const StepTypes& types) {
  return fmt::format("{}, gradients {}{}", count, name(types.gradient),
                     types.parameter ? fmt::format(", parameters {}", name(dtype)) : "");
}

// ---- adam

struct AdamOptions {
  bool decoupled = true;
  double decay = 0.1;
  std::int64_t step = 7;
  double gradient_scale = 0.125;
};

OpCase adam_case(DType dtype, std::int64_t count, const StepTypes& types,
                 const AdamOptions& options) {
  OpCase one;
  one.name = fmt::format("{}{}, decay {}, step {}", step_text(dtype, count, types),
                         options.decoupled ? "" : ", coupled", options.decay, options.step);
  one.fields = step_fields(dtype, count, types);
  one.fields.push_back(updated("first_moment", kF32, {count}, normal(0.1),
                               {.relative = 4, .noise = 2}, Freedom::kElements));
  one.fields.push_back(updated("second_moment", kF32, {count}, uniform(0.001, 0.1), {.relative = 8},
                               Freedom::kElements));
  one.run = [options](Ops& ops, const Tensors& t) {
    ops.run(ops::Adam{.master = t["master"],
                      .gradient = t["gradient"],
                      .first_moment = t["first_moment"],
                      .second_moment = t["second_moment"],
                      .parameter = t["parameter"],
                      .rate = 3e-3,
                      .decay = options.decay,
                      .decoupled = options.decoupled,
                      .step = options.step,
                      .gradient_scale = options.gradient_scale});
  };
  return one;
}

std::vector<OpCase> adam_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const StepTypes& types : step_types(dtype)) {
    for (const std::int64_t count : kOddCounts) cases.push_back(adam_case(dtype, count, types, {}));
    cases.push_back(adam_case(dtype, 67, types, {.decoupled = false}));
    cases.push_back(adam_case(dtype, 67, types, {.decay = 0, .step = 1, .gradient_scale = 1}));
    cases.push_back(adam_case(dtype, 67, types, {.step = 100000}));
  }
  return cases;
}

// 28 bytes for each parameter in f32: three tensors read and written, the gradient read.
OpCase adam_typical(DType dtype) {
  return adam_case(dtype, Typical::kParameters, step_types(dtype).front(), {});
}

std::vector<OpCase> adam_large(DType dtype) {
  std::vector<OpCase> cases;
  for (const std::int64_t count : {Typical::kParameters, Large::kMoreParameters}) {
    cases.push_back(adam_case(dtype, count, step_types(dtype).front(), {}));
  }
  return cases;
}

// ---- sgd

OpCase sgd_case(DType dtype, std::int64_t count, const StepTypes& types, double momentum) {
  OpCase one;
  one.name = fmt::format("{}, momentum {}", step_text(dtype, count, types), momentum);
  one.fields = step_fields(dtype, count, types);
  if (momentum > 0) {
    one.fields.push_back(updated("velocity", kF32, {count}, normal(), {.relative = 4, .noise = 8},
                                 Freedom::kElements));
  }
  one.run = [momentum](Ops& ops, const Tensors& t) {
    ops.run(ops::Sgd{.master = t["master"],
                     .gradient = t["gradient"],
                     .velocity = t["velocity"],
                     .parameter = t["parameter"],
                     .rate = 0.05,
                     .momentum = momentum,
                     .decay = 0.01,
                     .gradient_scale = 0.5});
  };
  return one;
}

std::vector<OpCase> sgd_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const StepTypes& types : step_types(dtype)) {
    for (const std::int64_t count : kOddCounts) {
      cases.push_back(sgd_case(dtype, count, types, 0));
      if (count > 0) cases.push_back(sgd_case(dtype, count, types, 0.9));
    }
  }
  return cases;
}

OpCase sgd_typical(DType dtype) {
  return sgd_case(dtype, Typical::kParameters, step_types(dtype).front(), 0.9);
}

std::vector<OpCase> sgd_large(DType dtype) { return {sgd_typical(dtype)}; }

// ---- sum_of_squares

OpCase squares_case(DType dtype, std::int64_t count, const Fill& fill) {
  OpCase one;
  one.name = fmt::format("{}, fill {}", count, static_cast<int>(fill.kind));
  // The result is f64, its terms may have been added in f32.
  const double relative = 16 * unit(kF32) / unit(DType::kF64);
  one.fields = {input("x", dtype, {count}, fill, Freedom::kShape),
                output("result", DType::kF64, {1}, {.relative = relative})};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::SumOfSquares{.x = t["x"], .result = t["result"]});
  };
  return one;
}

std::vector<OpCase> squares_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const std::int64_t count : kOddCounts) cases.push_back(squares_case(dtype, count, normal()));
  cases.push_back(squares_case(dtype, 100003, normal(3)));
  // Numbers whose squares f32 does not have are numbers still.
  if (dtype != DType::kF16) cases.push_back(squares_case(dtype, 1031, wide(60, 100)));
  return cases;
}

OpCase squares_typical(DType dtype) { return squares_case(dtype, Typical::kParameters, normal()); }
std::vector<OpCase> squares_large(DType dtype) {
  return {squares_typical(dtype), squares_case(dtype, Large::kMoreParameters, normal())};
}

}  // namespace

std::vector<OpDescription> describe_optimizer() {
  return {{"adam", adam_cases, adam_typical, {adam_large, kOptimizerBar}},
          {"sgd", sgd_cases, sgd_typical, {sgd_large}},
          {"sum_of_squares", squares_cases, squares_typical, {squares_large}}};
}

}  // namespace lockstep::bench
