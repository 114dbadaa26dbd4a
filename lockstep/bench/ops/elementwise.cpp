#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

// Element by element: lengths around those of vectors, as one dimension or as rows.
const Shape kOddShapes[] = {{0}, {1}, {3}, {17}, {64}, {5, 13}, {3, 1, 129}, {1031}};
const Shape kTypicalRows{Typical::kRows, Typical::kWidth};
const Shape kTypicalHiddenRows{Typical::kRows, Typical::kHidden};
const Shape kLargeRows{Large::kRows, Typical::kWidth};
const Shape kLargeHiddenRows{Large::kRows, Typical::kHidden};
const Shape kLlamaRows{Large::kLlamaRows, Large::kLlamaWidth};

// ---- activate

OpCase activate_case(DType dtype, const Shape& shape, ops::Activation activation, bool derivative,
                     bool in_place) {
  OpCase one;
  one.name = fmt::format("{}, activation {}{}{}", shape.text(), static_cast<int>(activation),
                         derivative ? ", derivative" : "", in_place ? ", in place" : "");
  const Tolerance tolerance{.noise = 24};
  if (in_place) {
    const Freedom alone = derivative ? Freedom::kNone : Freedom::kShape;
    one.fields = {updated("z", dtype, shape, normal(2), tolerance, alone)};
  } else {
    one.fields = {input("z", dtype, shape, normal(2)), output("y", dtype, shape, tolerance)};
  }
  if (derivative) one.fields.push_back(output("derivative", dtype, shape, tolerance));
  one.run = [activation, in_place](Ops& ops, const Tensors& t) {
    ops.run(ops::Activate{.activation = activation,
                          .z = t["z"],
                          .y = in_place ? t["z"] : t["y"],
                          .derivative = t["derivative"]});
  };
  if (derivative && !in_place) {
    one.gradient =
        Gradient{.inputs = {"z"}, .outputs = {"y"}, .backward = [](Ops& ops, const Tensors& t) {
                   ops.run(ops::Multiply{.a = t["dy"], .b = t["derivative"], .y = t["dz"]});
                 }};
  }
  return one;
}

std::vector<OpCase> activate_cases(DType dtype) {
  using enum ops::Activation;
  std::vector<OpCase> cases;
  for (const ops::Activation activation : {kGeluTanh, kGeluErf, kRelu}) {
    for (const Shape& shape : kOddShapes) {
      cases.push_back(activate_case(dtype, shape, activation, true, false));
    }
    cases.push_back(activate_case(dtype, {67}, activation, false, false));
    cases.push_back(activate_case(dtype, {67}, activation, true, true));
    cases.push_back(activate_case(dtype, {2, 35}, activation, false, true));
  }
  return cases;
}

OpCase activate_typical(DType dtype) {
  return activate_case(dtype, kTypicalHiddenRows, ops::Activation::kGeluTanh, true, false);
}

std::vector<OpCase> activate_large(DType dtype) {
  return {activate_case(dtype, kLargeHiddenRows, ops::Activation::kGeluTanh, true, false)};
}

// ---- multiply, add

enum class YIs { kApart, kA, kB };

template <class Op>
OpCase pair_case(DType dtype, const Shape& shape, YIs y) {
  OpCase one;
  const std::string place = y == YIs::kApart ? "y" : y == YIs::kA ? "a" : "b";
  one.name = shape.text() + (y == YIs::kApart ? "" : ", in place of " + place);
  for (const char* name : {"a", "b"}) {
    one.fields.push_back(place == name ? updated(name, dtype, shape, normal(), {})
                                       : input(name, dtype, shape, normal()));
  }
  if (y == YIs::kApart) one.fields.push_back(output("y", dtype, shape, {}));
  one.run = [place](Ops& ops, const Tensors& t) {
    ops.run(Op{.a = t["a"], .b = t["b"], .y = t[place]});
  };
  return one;
}

template <class Op>
std::vector<OpCase> pair_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Shape& shape : kOddShapes) cases.push_back(pair_case<Op>(dtype, shape, YIs::kApart));
  cases.push_back(pair_case<Op>(dtype, {131}, YIs::kA));
  cases.push_back(pair_case<Op>(dtype, {131}, YIs::kB));
  return cases;
}

template <class Op>
OpCase pair_typical(DType dtype) {
  return pair_case<Op>(dtype, kTypicalRows, YIs::kApart);
}

template <class Op>
std::vector<OpCase> pair_large(DType dtype) {
  return {pair_case<Op>(dtype, kLargeHiddenRows, YIs::kApart),
          pair_case<Op>(dtype, kLlamaRows, YIs::kApart)};
}

// ---- drop

OpCase drop_case(DType dtype, const Shape& shape, double probability, bool in_place) {
  OpCase one;
  one.name = fmt::format("{}, p {}{}", shape.text(), probability, in_place ? ", in place" : "");
  const Tolerance tolerance{.relative = 4};
  if (in_place) {
    one.fields = {updated("x", dtype, shape, normal(), tolerance, Freedom::kShape)};
  } else {
    one.fields = {input("x", dtype, shape, normal()), output("y", dtype, shape, tolerance)};
  }
  const ops::Dropout dropout{.probability = probability, .seed = 11, .step = 3, .first = 4096};
  one.run = [dropout, in_place](Ops& ops, const Tensors& t) {
    ops.run(ops::Drop{.dropout = dropout, .x = t["x"], .y = in_place ? t["x"] : t["y"]});
  };
  if (in_place) return one;
  one.gradient = Gradient{
      .inputs = {"x"}, .outputs = {"y"}, .backward = [dropout](Ops& ops, const Tensors& t) {
        ops.run(ops::Drop{.dropout = dropout, .x = t["dy"], .y = t["dx"]});
      }};
  return one;
}

std::vector<OpCase> drop_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Shape& shape : kOddShapes) cases.push_back(drop_case(dtype, shape, 0.1, false));
  cases.push_back(drop_case(dtype, {131}, 0, false));
  cases.push_back(drop_case(dtype, {131}, 0, true));
  cases.push_back(drop_case(dtype, {131}, 0.75, true));
  return cases;
}

OpCase drop_typical(DType dtype) { return drop_case(dtype, kTypicalRows, 0.1, false); }
std::vector<OpCase> drop_large(DType dtype) { return {drop_case(dtype, kLargeRows, 0.1, false)}; }

// ---- cast

OpCase cast_case(DType from, DType to, const Shape& shape, const Fill& fill) {
  OpCase one;
  one.name = fmt::format("{} to {}, {}, fill {}", name(from), name(to), shape.text(),
                         static_cast<int>(fill.kind));
  one.fields = {input("from", from, shape, fill, Freedom::kElements),
                output("to", to, shape, {.relative = 0}, Freedom::kElements)};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::Cast{.from = t["from"], .to = t["to"]});
  };
  return one;
}

std::vector<OpCase> cast_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const DType other : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const Shape& shape : kOddShapes) cases.push_back(cast_case(dtype, other, shape, normal()));
    cases.push_back(cast_case(dtype, other, {1031}, wide(-30, 20)));
    cases.push_back(cast_case(dtype, other, {1031}, wide(-150, 130)));
  }
  cases.push_back(cast_case(DType::kF64, dtype, {1031}, normal()));
  cases.push_back(cast_case(DType::kF64, dtype, {1031}, wide(-160, 140)));
  return cases;
}

// From masters to what is computed with.
OpCase cast_typical(DType dtype) {
  return cast_case(DType::kF32, dtype, {Typical::kRows, Typical::kHidden}, normal());
}

std::vector<OpCase> cast_large(DType dtype) {
  return {cast_case(DType::kF32, dtype, {Typical::kParameters}, normal())};
}

// ---- scale

OpCase scale_case(DType dtype, const Shape& shape) {
  OpCase one;
  one.name = shape.text();
  one.fields = {updated("x", dtype, shape, normal(), {.relative = 4}, Freedom::kShape)};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::Scale{.x = t["x"], .factor = -1.0 / 3});
  };
  return one;
}

std::vector<OpCase> scale_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Shape& shape : kOddShapes) cases.push_back(scale_case(dtype, shape));
  return cases;
}

OpCase scale_again(DType dtype, const Shape& shape) {
  OpCase one = scale_case(dtype, shape);
  // Again and again, without running into subnormal numbers.
  one.run = [](Ops& ops, const Tensors& t) { ops.run(ops::Scale{.x = t["x"], .factor = -1}); };
  return one;
}

OpCase scale_typical(DType dtype) { return scale_again(dtype, kTypicalHiddenRows); }
std::vector<OpCase> scale_large(DType dtype) { return {scale_again(dtype, kLargeHiddenRows)}; }

// ---- soft_cap

OpCase soft_cap_case(DType dtype, const Shape& shape, const Fill& fill, double cap) {
  OpCase one;
  one.name = fmt::format("{}, at {}", shape.text(), cap);
  one.fields = {updated("x", dtype, shape, fill, {.relative = is_narrow(dtype) ? 2.0 : 32.0},
                        Freedom::kShape)};
  one.run = [cap](Ops& ops, const Tensors& t) { ops.run(ops::SoftCap{.x = t["x"], .cap = cap}); };
  return one;
}

std::vector<OpCase> soft_cap_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Shape& shape : kOddShapes) {
    cases.push_back(soft_cap_case(dtype, shape, normal(4), 3));
    cases.push_back(soft_cap_case(dtype, shape, normal(4), 30));
  }
  cases.push_back(soft_cap_case(dtype, {1031}, wide(-30, 15), 50));
  return cases;
}

OpCase soft_cap_typical(DType dtype) {
  return soft_cap_case(dtype, {Typical::kLogitRows, Typical::kVocabulary}, normal(4), 30);
}
std::vector<OpCase> soft_cap_large(DType dtype) {
  return {soft_cap_case(dtype, {8192, Large::kPaddedVocabulary}, normal(4), 30)};
}

}  // namespace

std::vector<OpDescription> describe_elementwise() {
  using ops::Add;
  using ops::Multiply;
  return {{"activate", activate_cases, activate_typical, {activate_large, kRowsBar}},
          {"multiply", pair_cases<Multiply>, pair_typical<Multiply>, {pair_large<Multiply>}},
          {"add", pair_cases<Add>, pair_typical<Add>, {pair_large<Add>}},
          {"drop", drop_cases, drop_typical, {drop_large}},
          {"cast", cast_cases, cast_typical, {cast_large}},
          {"scale", scale_cases, scale_typical, {scale_large}},
          {"soft_cap", soft_cap_cases, soft_cap_typical, {soft_cap_large}}};
}

}  // namespace lockstep::bench
