#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::bench {
namespace {

// What is timed on a GPU: layers of GPT-2 1558M on 16 x 1024 tokens.
constexpr std::int64_t kTokens = 16 * 1024;
constexpr std::int64_t kWidth = 1600;
constexpr std::int64_t kHidden = 4 * kWidth;

Shape one_scaling() { return {ops::kScaling}; }

// Calls edit(elements), wherever the tensor lies.
template <class T, class Edit>
void edit_elements(const Tensor& tensor, Edit&& edit) {
  if (tensor.device() == Device{}) return edit(tensor.as<T>());
  Buffer memory(tensor.bytes());
  const Tensor here = memory.tensor(tensor.dtype(), tensor.shape());
  copy(here, tensor);
  edit(here.as<T>());
  copy(tensor, here);
}

void set_scaling(const Tensor& scaling, Float8 format, float scale) {
  edit_elements<float>(scaling, [&](std::span<float> numbers) {
    std::ranges::fill(numbers, 0.0f);
    numbers[ops::kScale] = scale;
    numbers[ops::kInverse] = scale == 0 ? 0 : 1 / scale;
    numbers[ops::kLargest] = largest(format);
  });
}

std::string_view format_name(Float8 format) { return format == Float8::kE4M3 ? "e4m3" : "e5m2"; }

// ---- quantize

enum class From { kX, kActivated, kDifferentiated };

struct QuantizeSizes {
  std::int64_t rows, columns;
};

struct QuantizeKind {
  From from = From::kX;
  ops::Activation activation = ops::Activation::kGeluTanh;
  Float8 format = Float8::kE4M3;
  bool rows = true;
  bool transposed = true;
  bool dbias = false;
  float scale = 16;  // 0: is found
};

std::string text_of(const QuantizeSizes& sizes, const QuantizeKind& kind) {
  constexpr std::string_view kActivations[] = {"gelu tanh", "gelu erf", "relu"};
  std::string text =
      fmt::format("{} x {}, {}", sizes.rows, sizes.columns, format_name(kind.format));
  if (kind.from == From::kActivated) text += ", f(z)";
  if (kind.from == From::kDifferentiated) text += ", x f'(z)";
  if (kind.from != From::kX) {
    text += fmt::format(" {}", kActivations[static_cast<std::size_t>(kind.activation)]);
  }
  if (!kind.rows) text += ", transposed alone";
  if (!kind.transposed) text += ", rows alone";
  if (kind.dbias) text += ", dbias";
  if (kind.scale == 0) text += ", calibrates";
  return text;
}

OpCase quantize_case(DType dtype, const QuantizeSizes& sizes, const QuantizeKind& kind) {
  OpCase one;
  one.name = text_of(sizes, kind);
  const Shape shape{sizes.rows, sizes.columns};
  // What an activation gives may be off by a last place of f32, and then be the neighbour.
  const bool exact = kind.from == From::kX;
  const Tolerance bytes{.relative = 0, .noise = exact ? 0.0 : 0x1p24};
  const Tolerance amax{.relative = exact ? 0.0 : 64.0};
  if (kind.from != From::kActivated) one.fields.push_back(input("x", dtype, shape, normal(4)));
  // Where a slope vanishes the two zeros of a format, which differ in their sign, are as good.
  if (kind.from != From::kX) one.fields.push_back(input("z", dtype, shape, normal()));
  const bool calibrates = kind.scale == 0;
  if (calibrates) {
    one.fields.push_back(updated("scaling", DType::kF32, one_scaling(), normal(), {.relative = 0}));
  } else {
    one.fields.push_back(input("scaling", DType::kF32, one_scaling(), normal()));
  }
  one.fields.push_back(updated("amax", DType::kF32, {1}, uniform(0, 1), amax));
  if (kind.rows) one.fields.push_back(output("y", DType::kU8, shape, bytes));
  if (kind.transposed) {
    one.fields.push_back(output("transposed", DType::kU8, {sizes.columns, sizes.rows}, bytes));
  }
  if (kind.dbias) {
    one.fields.push_back(updated("dbias", DType::kF32, {sizes.columns}, normal(),
                                 {.noise = 24 * noise_of_sum(sizes.rows)}));
  }
  one.prepare = [kind](Ops&, const Tensors& t) {
    set_scaling(t["scaling"], kind.format, kind.scale);
  };
  one.run = [kind, calibrates](Ops& ops, const Tensors& t) {
    ops.run(ops::Quantize{.x = t["x"],
                          .z = t["z"],
                          .activation = kind.activation,
                          .format = kind.format,
                          .scaling = t["scaling"],
                          .amax = t["amax"],
                          .calibrates = calibrates,
                          .y = t["y"],
                          .transposed = t["transposed"],
                          .dbias = t["dbias"]});
  };
  const LinearShape layer{.rows = sizes.rows, .in = sizes.columns, .out = sizes.columns};
  one.scratch = [layer](const Ops& ops) { return ops.scratch(layer); };
  return one;
}

std::vector<OpCase> quantize_cases(DType dtype) {
  std::vector<OpCase> cases;
  // Odd ones, and around a GPU's tiles.
  for (const QuantizeSizes& sizes : {QuantizeSizes{1, 1},
                                     {3, 17},
                                     {0, 5},
                                     {16, 8},
                                     {48, 72},
                                     {128, 64},
                                     {144, 136},
                                     {130, 64},
                                     {128, 65},
                                     {272, 200}}) {
    cases.push_back(quantize_case(dtype, sizes, {}));
    cases.push_back(quantize_case(dtype, sizes, {.format = Float8::kE5M2, .dbias = true}));
  }
  for (const QuantizeSizes& sizes : {QuantizeSizes{144, 136}, {17, 31}}) {
    cases.push_back(quantize_case(dtype, sizes, {.transposed = false}));
    cases.push_back(quantize_case(dtype, sizes, {.rows = false}));
    // Beyond the largest number, and in the subnormal ones.
    cases.push_back(quantize_case(dtype, sizes, {.scale = 1024}));
    cases.push_back(quantize_case(dtype, sizes, {.scale = 0x1p-8f}));
    cases.push_back(quantize_case(dtype, sizes, {.scale = 0}));
    cases.push_back(quantize_case(dtype, sizes, {.format = Float8::kE5M2, .scale = 0}));
    for (const ops::Activation activation :
         {ops::Activation::kGeluTanh, ops::Activation::kGeluErf, ops::Activation::kRelu}) {
      cases.push_back(
          quantize_case(dtype, sizes, {.from = From::kActivated, .activation = activation}));
      cases.push_back(quantize_case(dtype, sizes,
                                    {.from = From::kDifferentiated,
                                     .activation = activation,
                                     .format = Float8::kE5M2,
                                     .dbias = true}));
    }
  }
  return cases;
}

OpCase quantize_typical(DType dtype) {
  return quantize_case(dtype, {Typical::kRows, Typical::kHidden}, {});
}

// Those of a block: the input of attention, what GELU gives, and the two gradients that are most.
std::vector<OpCase> quantize_large(DType dtype) {
  return {quantize_case(dtype, {kTokens, kWidth}, {}),
          quantize_case(dtype, {kTokens, kHidden}, {.from = From::kActivated}),
          quantize_case(dtype, {kTokens, kHidden},
                        {.from = From::kDifferentiated, .format = Float8::kE5M2, .dbias = true}),
          quantize_case(dtype, {kTokens, 3 * kWidth}, {.format = Float8::kE5M2, .dbias = true})};
}

// ---- scaled_matmul

struct MatmulSizes {
  std::int64_t rows, columns, inner;
};

enum class Addend { kNone, kApart, kIsY };

// Normal numbers, stored by that scale; large tensors repeat them.
void fill_bytes(const Tensor& bytes, Float8 format, float scale, double stddev,
                std::uint64_t seed) {
  constexpr std::size_t kPeriod = 65521;  // a prime, so that rows differ
  edit_elements<std::uint8_t>(bytes, [&](std::span<std::uint8_t> all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i >= kPeriod) {
        all[i] = all[i - kPeriod];
        continue;
      }
      const double number = stddev * static_cast<double>(normal_at(seed, 0, i));
      all[i] = to_float8(static_cast<float>(number) * scale, format);
    }
  });
}

OpCase matmul_case(DType dtype, const MatmulSizes& sizes, Float8 a_format, bool bias, Addend addend,
                   bool fast) {
  OpCase one;
  one.name = fmt::format("{} x {} x {}, {}{}{}{}", sizes.rows, sizes.columns, sizes.inner,
                         format_name(a_format), bias ? ", bias" : "",
                         addend == Addend::kNone  ? ""
                         : addend == Addend::kIsY ? ", residual in place"
                                                  : ", residual",
                         fast ? ", fast" : "");
  const Shape shape{sizes.rows, sizes.columns};
  // Tensor cores keep about 14 bits of sums of 8-bit products, for a while or till the end.
  // A product may be rounded before a residual is added.
  const Tolerance tolerance{.noise = fast ? 0x1p16 : 0x1p15,
                            .coarse = addend == Addend::kNone ? 0.0 : 4.0};
  one.fields = {input("a", DType::kU8, {sizes.rows, sizes.inner}, uniform(0, 1)),
                input("b", DType::kU8, {sizes.columns, sizes.inner}, uniform(0, 1)),
                input("a_scaling", DType::kF32, one_scaling(), normal()),
                input("b_scaling", DType::kF32, one_scaling(), normal())};
  if (bias) one.fields.push_back(input("bias", dtype, {sizes.columns}, normal()));
  const bool in_place = addend == Addend::kIsY;
  if (in_place) {
    one.fields.push_back(updated("y", dtype, shape, normal(), tolerance));
  } else {
    one.fields.push_back(output("y", dtype, shape, tolerance));
  }
  if (addend == Addend::kApart) {
    one.fields.push_back(input("residual", dtype, shape, normal()));
  }
  one.prepare = [sizes, a_format](Ops&, const Tensors& t) {
    constexpr float kScaleA = 32, kScaleB = 64;
    set_scaling(t["a_scaling"], a_format, kScaleA);
    set_scaling(t["b_scaling"], Float8::kE4M3, kScaleB);
    fill_bytes(t["a"], a_format, kScaleA, 1, 1);
    fill_bytes(t["b"], Float8::kE4M3, kScaleB, balanced(sizes.inner), 2);
  };
  one.run = [a_format, in_place, fast](Ops& ops, const Tensors& t) {
    ops.run(ops::ScaledMatmul{.a = t["a"],
                              .b = t["b"],
                              .a_format = a_format,
                              .b_format = Float8::kE4M3,
                              .a_scaling = t["a_scaling"],
                              .b_scaling = t["b_scaling"],
                              .bias = t["bias"],
                              .residual = in_place ? t["y"] : t["residual"],
                              .y = t["y"],
                              .fast = fast});
  };
  const LinearShape layer{
      .rows = sizes.rows, .in = sizes.inner, .out = sizes.columns, .dtype = dtype};
  one.scratch = [layer](const Ops& ops) { return ops.scratch(layer); };
  one.flops = 2 * static_cast<double>(sizes.rows) * static_cast<double>(sizes.columns) *
              static_cast<double>(sizes.inner);
  return one;
}

std::vector<OpCase> matmul_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const MatmulSizes& sizes : {MatmulSizes{1, 1, 1},
                                   {3, 5, 17},
                                   {16, 16, 16},
                                   {32, 48, 80},
                                   {144, 160, 272},
                                   {17, 16, 32}}) {
    for (const Float8 format : {Float8::kE4M3, Float8::kE5M2}) {
      cases.push_back(matmul_case(dtype, sizes, format, false, Addend::kNone, false));
      cases.push_back(matmul_case(dtype, sizes, format, false, Addend::kIsY, false));
    }
    cases.push_back(matmul_case(dtype, sizes, Float8::kE4M3, true, Addend::kNone, true));
    cases.push_back(matmul_case(dtype, sizes, Float8::kE4M3, true, Addend::kApart, true));
  }
  return cases;
}

OpCase matmul_typical(DType dtype) {
  // Few rows: on the CPU it is the reference that is timed.
  return matmul_case(dtype, {Typical::kLogitRows, Typical::kHidden, Typical::kWidth}, Float8::kE4M3,
                     true, Addend::kNone, true);
}

// The products of a feed-forward layer: up, the gradient of down's input, and of up's weight.
std::vector<OpCase> matmul_large(DType dtype) {
  return {
      matmul_case(dtype, {kTokens, kHidden, kWidth}, Float8::kE4M3, true, Addend::kNone, true),
      matmul_case(dtype, {kTokens, kHidden, kWidth}, Float8::kE5M2, false, Addend::kNone, false),
      matmul_case(dtype, {kHidden, kWidth, kTokens}, Float8::kE5M2, false, Addend::kIsY, false)};
}

// ---- update_scaling

OpCase update_case(std::int64_t tensors, std::string name, float amax) {
  OpCase one;
  one.name = fmt::format("{}{}", tensors, name);
  one.fields = {
      updated("scaling", DType::kF32, {tensors, ops::kScaling}, uniform(0, 2), {.relative = 0}),
      updated("amax", DType::kF32, {tensors}, uniform(0, 4), {.relative = 0})};
  one.prepare = [amax](Ops&, const Tensors& t) {
    edit_elements<float>(t["amax"], [&](std::span<float> all) {
      for (float& each : all) each *= amax;
    });
    edit_elements<float>(t["scaling"], [](std::span<float> numbers) {
      for (std::size_t row = 0; row < numbers.size(); row += ops::kScaling) {
        numbers[row + ops::kLargest] = largest(row % 2 == 0 ? Float8::kE4M3 : Float8::kE5M2);
      }
    });
  };
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::UpdateScaling{.scaling = t["scaling"], .amax = t["amax"]});
  };
  return one;
}

std::vector<OpCase> update_cases(DType) {
  return {update_case(1, "", 1), update_case(300, "", 1), update_case(7, ", zero", 0),
          update_case(5, ", tiny", 0x1p-140f),
          update_case(3, ", infinite", std::numeric_limits<float>::infinity())};
}

// The layers of GPT-2 124M, and of 1558M.
OpCase update_typical(DType) { return update_case(12 * 12, "", 1); }
std::vector<OpCase> update_large(DType) { return {update_case(48 * 12, "", 1)}; }

}  // namespace

std::vector<OpDescription> describe_float8() {
  return {{"quantize", quantize_cases, quantize_typical, {quantize_large}},
          {"scaled_matmul", matmul_cases, matmul_typical, {matmul_large}},
          {"update_scaling", update_cases, update_typical, {update_large}}};
}

}  // namespace lockstep::bench
