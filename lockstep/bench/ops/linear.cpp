#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

struct LinearSizes {
  std::int64_t rows, in, out;

  double flops() const {
    return 2 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  }
  std::string text() const { return fmt::format("{} x {} to {}", rows, in, out); }
};

// Odd, empty and prime, and around the blocks that fast kernels have.
constexpr LinearSizes kOddLayers[] = {{1, 1, 1},     {3, 17, 5},   {17, 3, 1},   {0, 7, 5},
                                      {5, 0, 3},     {4, 7, 0},    {31, 64, 48}, {16, 16, 16},
                                      {67, 129, 33}, {2, 769, 31}, {130, 5, 64}};
constexpr LinearSizes kUp{Typical::kRows, Typical::kWidth, Typical::kHidden};
constexpr LinearSizes kDown{Typical::kRows, Typical::kHidden, Typical::kWidth};
constexpr LinearSizes kLargeUp{Large::kRows, Typical::kWidth, Typical::kHidden};
constexpr LinearSizes kLargeDown{Large::kRows, Typical::kHidden, Typical::kWidth};
constexpr LinearSizes kLlamaUp{Large::kLlamaRows, Large::kLlamaWidth, Large::kLlamaHidden};

auto layer_scratch(const LinearSizes& sizes, DType dtype, DType gradient) {
  const LinearShape shape{
      .rows = sizes.rows, .in = sizes.in, .out = sizes.out, .dtype = dtype, .gradient = gradient};
  return [shape](const Ops& ops) { return ops.scratch(shape); };
}

std::vector<OpField> layer_fields(const LinearSizes& sizes, DType dtype, bool bias) {
  std::vector<OpField> fields = {
      input("x", dtype, {sizes.rows, sizes.in}, normal()),
      input("weight", dtype, {sizes.out, sizes.in}, normal(balanced(sizes.in)))};
  if (bias) fields.push_back(input("bias", dtype, {sizes.out}, normal()));
  return fields;
}

// ---- linear

enum class Residual { kNone, kApart, kIsY };

OpCase linear_case(DType dtype, const LinearSizes& sizes, bool bias, Residual residual) {
  OpCase one;
  one.name = sizes.text() + (bias ? ", bias" : "");
  one.fields = layer_fields(sizes, dtype, bias);
  const Shape out{sizes.rows, sizes.out};
  const Tolerance tolerance{.noise = noise_of_sum(sizes.in)};
  if (residual == Residual::kIsY) {
    one.name += ", residual in place";
    one.fields.push_back(updated("y", dtype, out, normal(), tolerance));
  } else {
    one.fields.push_back(output("y", dtype, out, tolerance));
  }
  if (residual == Residual::kApart) {
    one.name += ", residual";
    one.fields.push_back(input("residual", dtype, out, normal()));
  }
  const bool in_place = residual == Residual::kIsY;
  one.run = [in_place](Ops& ops, const Tensors& t) {
    ops.run(ops::Linear{.x = t["x"],
                        .weight = t["weight"],
                        .bias = t["bias"],
                        .residual = in_place ? t["y"] : t["residual"],
                        .y = t["y"]});
  };
  one.scratch = layer_scratch(sizes, dtype, dtype);
  one.flops = sizes.flops();
  if (in_place) return one;
  one.gradient = Gradient{
      .inputs = {"x", "weight"}, .outputs = {"y"}, .backward = [](Ops& ops, const Tensors& t) {
        ops.run(ops::LinearBackwardInput{.dy = t["dy"], .weight = t["weight"], .dx = t["dx"]});
        ops.run(ops::LinearBackwardWeight{
            .dy = t["dy"], .x = t["x"], .dweight = t["dweight"], .dbias = t["dbias"]});
      }};
  if (bias) one.gradient->inputs.push_back("bias");
  return one;
}

std::vector<OpCase> linear_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const LinearSizes& sizes : kOddLayers) {
    cases.push_back(linear_case(dtype, sizes, true, Residual::kNone));
  }
  cases.push_back(linear_case(dtype, {17, 31, 13}, false, Residual::kNone));
  cases.push_back(linear_case(dtype, {17, 31, 13}, true, Residual::kApart));
  cases.push_back(linear_case(dtype, {17, 31, 13}, false, Residual::kApart));
  cases.push_back(linear_case(dtype, {17, 31, 13}, true, Residual::kIsY));
  cases.push_back(linear_case(dtype, {33, 65, 70}, false, Residual::kIsY));
  cases.push_back(linear_case(dtype, {2, 3, 50257}, false, Residual::kNone));
  return cases;
}

OpCase linear_typical(DType dtype) { return linear_case(dtype, kDown, true, Residual::kNone); }
std::vector<OpCase> linear_large(DType dtype) {
  return {linear_case(dtype, kLargeDown, true, Residual::kNone),
          linear_case(dtype, kLlamaUp, false, Residual::kNone)};
}

// ---- linear_few_rows: as in generating text, where a weight is read for a row or two

std::vector<OpCase> few_rows_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9}) {
    cases.push_back(linear_case(dtype, {rows, 67, 41}, true, Residual::kApart));
  }
  // Inputs that are whole vectors on a GPU.
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 8}) {
    cases.push_back(linear_case(dtype, {rows, 776, 131}, true, Residual::kApart));
  }
  cases.push_back(linear_case(dtype, {1, 3072, 37}, true, Residual::kIsY));
  cases.push_back(linear_case(dtype, {7, 8, 6301}, false, Residual::kNone));
  cases.push_back(linear_case(dtype, {1, 1, 131}, false, Residual::kNone));
  cases.push_back(linear_case(dtype, {1, 771, 97}, true, Residual::kIsY));
  cases.push_back(linear_case(dtype, {6, 130, 257}, false, Residual::kIsY));
  return cases;
}

OpCase few_rows_typical(DType dtype) {
  return linear_case(dtype, {1, Typical::kWidth, Typical::kHidden}, true, Residual::kNone);
}

std::vector<OpCase> few_rows_large(DType dtype) {
  std::vector<OpCase> cases;
  for (const std::int64_t rows : {1, 8}) {
    cases.push_back(linear_case(dtype, {rows, Large::kLlamaWidth, Large::kLlamaHidden}, false,
                                Residual::kNone));
  }
  return cases;
}

// ---- linear_activation

std::string_view activation_name(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::kGeluTanh:
      return "gelu tanh";
    case ops::Activation::kGeluErf:
      return "gelu erf";
    case ops::Activation::kRelu:
      return "relu";
  }
  return "?";
}

OpCase activation_case(DType dtype, const LinearSizes& sizes, bool bias, ops::Activation activation,
                       bool derivative, bool z) {
  OpCase one;
  one.name = fmt::format("{}, {}{}{}{}", sizes.text(), activation_name(activation),
                         bias ? ", bias" : "", derivative ? ", derivative" : "", z ? ", z" : "");
  one.fields = layer_fields(sizes, dtype, bias);
  const Shape out{sizes.rows, sizes.out};
  // z itself may be rounded to its neighbour, and y and the derivative follow it.
  const double noise = 16 + 2 * noise_of_sum(sizes.in);
  one.fields.push_back(output("y", dtype, out, {.relative = 5, .noise = noise, .coarse = 1}));
  if (derivative) {
    one.fields.push_back(output("derivative", dtype, out, {.noise = noise, .coarse = 4}));
  }
  if (z) one.fields.push_back(output("z", dtype, out, {.noise = noise_of_sum(sizes.in)}));
  one.run = [activation](Ops& ops, const Tensors& t) {
    ops.run(ops::LinearActivation{.x = t["x"],
                                  .weight = t["weight"],
                                  .bias = t["bias"],
                                  .activation = activation,
                                  .y = t["y"],
                                  .derivative = t["derivative"],
                                  .z = t["z"]});
  };
  one.scratch = layer_scratch(sizes, dtype, dtype);
  one.flops = sizes.flops();
  if (!derivative) return one;
  one.gradient = Gradient{
      .inputs = {"x", "weight"}, .outputs = {"y"}, .backward = [](Ops& ops, const Tensors& t) {
        ops.run(ops::Multiply{.a = t["dy"], .b = t["derivative"], .y = t["dy"]});
        ops.run(ops::LinearBackwardInput{.dy = t["dy"], .weight = t["weight"], .dx = t["dx"]});
        ops.run(ops::LinearBackwardWeight{
            .dy = t["dy"], .x = t["x"], .dweight = t["dweight"], .dbias = t["dbias"]});
      }};
  if (bias) one.gradient->inputs.push_back("bias");
  return one;
}

std::vector<OpCase> activation_cases(DType dtype) {
  using enum ops::Activation;
  std::vector<OpCase> cases;
  for (const LinearSizes& sizes : kOddLayers) {
    cases.push_back(activation_case(dtype, sizes, true, kGeluTanh, true, true));
  }
  for (const ops::Activation activation : {kGeluTanh, kGeluErf, kRelu}) {
    cases.push_back(activation_case(dtype, {7, 19, 23}, true, activation, true, false));
    cases.push_back(activation_case(dtype, {7, 19, 23}, false, activation, false, false));
    cases.push_back(activation_case(dtype, {7, 19, 23}, false, activation, false, true));
  }
  return cases;
}

OpCase activation_typical(DType dtype) {
  return activation_case(dtype, kUp, true, ops::Activation::kGeluTanh, true, false);
}

// A GPU keeps z where it can differentiate from it.
std::vector<OpCase> activation_large(DType dtype) {
  return {activation_case(dtype, kLargeUp, true, ops::Activation::kGeluTanh, false, true)};
}

// ---- linear_backward_input

enum class Into { kOverwrite, kFactor, kAccumulate };

OpCase backward_input_case(DType dtype, const LinearSizes& sizes, Into into) {
  OpCase one;
  one.name = sizes.text();
  one.fields = {input("dy", dtype, {sizes.rows, sizes.out}, normal()),
                input("weight", dtype, {sizes.out, sizes.in}, normal(balanced(sizes.out)))};
  const Shape in{sizes.rows, sizes.in};
  // A factor is seldom above 4.
  const double noise = noise_of_sum(sizes.out) * (into == Into::kFactor ? 4 : 1);
  const Tolerance tolerance{.noise = noise};
  if (into == Into::kAccumulate) {
    one.name += ", accumulate";
    one.fields.push_back(updated("dx", dtype, in, normal(), tolerance));
  } else {
    one.fields.push_back(output("dx", dtype, in, tolerance));
  }
  if (into == Into::kFactor) {
    one.name += ", factor";
    one.fields.push_back(input("factor", dtype, in, normal()));
  }
  const bool accumulate = into == Into::kAccumulate;
  one.run = [accumulate](Ops& ops, const Tensors& t) {
    ops.run(ops::LinearBackwardInput{.dy = t["dy"],
                                     .weight = t["weight"],
                                     .factor = t["factor"],
                                     .dx = t["dx"],
                                     .accumulate = accumulate});
  };
  one.scratch = layer_scratch(sizes, dtype, dtype);
  one.flops = sizes.flops();
  return one;
}

std::vector<OpCase> backward_input_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const LinearSizes& sizes : kOddLayers) {
    cases.push_back(backward_input_case(dtype, sizes, Into::kOverwrite));
  }
  for (const LinearSizes& sizes :
       {LinearSizes{13, 37, 19}, LinearSizes{64, 33, 17}, LinearSizes{5, 0, 3}}) {
    cases.push_back(backward_input_case(dtype, sizes, Into::kFactor));
    cases.push_back(backward_input_case(dtype, sizes, Into::kAccumulate));
  }
  return cases;
}

OpCase backward_input_typical(DType dtype) {
  return backward_input_case(dtype, kDown, Into::kFactor);
}

std::vector<OpCase> backward_input_large(DType dtype) {
  return {backward_input_case(dtype, kLargeDown, Into::kOverwrite),
          backward_input_case(dtype, kLlamaUp, Into::kOverwrite)};
}

// ---- linear_backward_weight

OpCase backward_weight_case(DType dtype, const LinearSizes& sizes, bool bias, DType gradient,
                            bool overwrite = false) {
  OpCase one;
  one.name = fmt::format("{}{}, gradients {}{}", sizes.text(), bias ? ", bias" : "", name(gradient),
                         overwrite ? ", overwrite" : "");
  const auto field = [overwrite](const char* of, DType type, const Shape& shape, Tolerance error) {
    return overwrite ? output(of, type, shape, error) : updated(of, type, shape, normal(), error);
  };
  const Tolerance tolerance{.noise = noise_of_sum(sizes.rows)};
  one.fields = {
      input("dy", dtype, {sizes.rows, sizes.out}, normal(balanced(sizes.rows))),
      input("x", dtype, {sizes.rows, sizes.in}, normal()),
      field("dweight", gradient, {sizes.out, sizes.in}, tolerance),
  };
  if (bias) one.fields.push_back(field("dbias", gradient, {sizes.out}, tolerance));
  one.run = [overwrite](Ops& ops, const Tensors& t) {
    ops.run(ops::LinearBackwardWeight{.dy = t["dy"],
                                      .x = t["x"],
                                      .dweight = t["dweight"],
                                      .dbias = t["dbias"],
                                      .overwrite = overwrite});
  };
  one.scratch = layer_scratch(sizes, dtype, gradient);
  one.flops = sizes.flops();
  return one;
}

std::vector<OpCase> backward_weight_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const LinearSizes& sizes : kOddLayers) {
    cases.push_back(backward_weight_case(dtype, sizes, true, DType::kF32));
    cases.push_back(backward_weight_case(dtype, sizes, true, dtype, true));
    if (is_narrow(dtype)) cases.push_back(backward_weight_case(dtype, sizes, true, dtype));
  }
  cases.push_back(backward_weight_case(dtype, {131, 29, 34}, false, dtype));
  cases.push_back(backward_weight_case(dtype, {131, 29, 34}, false, DType::kF32, true));
  return cases;
}

OpCase backward_weight_typical(DType dtype) {
  return backward_weight_case(dtype, kDown, true, DType::kF32);
}
std::vector<OpCase> backward_weight_large(DType dtype) {
  return {backward_weight_case(dtype, kLargeDown, true, DType::kF32),
          backward_weight_case(dtype, kLlamaUp, false, DType::kF32)};
}

}  // namespace

std::vector<OpDescription> describe_linear() {
  return {{"linear", linear_cases, linear_typical, {linear_large}},
          {"linear_few_rows", few_rows_cases, few_rows_typical, {few_rows_large}, "linear"},
          {"linear_activation", activation_cases, activation_typical, {activation_large}},
          {"linear_backward_input",
           backward_input_cases,
           backward_input_typical,
           {backward_input_large}},
          {"linear_backward_weight",
           backward_weight_cases,
           backward_weight_typical,
           {backward_weight_large}}};
}

}  // namespace lockstep::bench
