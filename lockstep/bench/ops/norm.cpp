#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

using ops::NormKind;

enum class SumIs { kNone, kApart, kX, kBranch };  // kNone: there is no branch

struct NormOptions {
  NormKind kind = NormKind::kLayer;
  bool bias = true;  // of a layer norm
  SumIs sum = SumIs::kNone;
  double dropout = 0;
  bool above_one = false;

  Fill gains() const { return normal(0.25, above_one ? 0 : 1); }
  bool has_bias() const { return bias && kind == NormKind::kLayer; }
  ops::Dropout dropping() const { return {.probability = dropout, .seed = 5, .step = 9}; }
  std::string text() const {
    return fmt::format("{}{}{}{}{}", kind == NormKind::kLayer ? "layer" : "rms",
                       has_bias() ? ", bias" : "", above_one ? ", above 1" : "",
                       sum == SumIs::kNone    ? ""
                       : sum == SumIs::kApart ? ", branch"
                       : sum == SumIs::kX     ? ", branch, sum on x"
                                              : ", branch, sum on branch",
                       dropout > 0 ? fmt::format(", p {}", dropout) : "");
  }
};

constexpr std::pair<std::int64_t, std::int64_t> kOddNorms[] = {{1, 1},  {3, 17}, {17, 3},  {0, 8},
                                                               {5, 64}, {7, 67}, {2, 1031}};

// What a statistic of `width` elements may miss when one of them was rounded to its neighbour.
double flipped(DType dtype, std::int64_t width) {
  return 16 * unit(dtype) / unit(DType::kF32) / static_cast<double>(width);
}

std::vector<OpField> parameter_fields(DType dtype, std::int64_t width, const NormOptions& options) {
  std::vector<OpField> fields = {input("gain", dtype, {width}, options.gains())};
  if (options.has_bias()) fields.push_back(input("bias", dtype, {width}, normal()));
  return fields;
}

std::string place_of_sum(const NormOptions& options) {
  return options.sum == SumIs::kX ? "x" : options.sum == SumIs::kBranch ? "branch" : "sum";
}

void run_norm(Ops& ops, const Tensors& t, const NormOptions& options) {
  const bool branch = options.sum != SumIs::kNone;
  ops.run(ops::Norm{.kind = options.kind,
                    .x = t["x"],
                    .branch = branch ? t["branch"] : Tensor{},
                    .dropout = options.dropping(),
                    .sum = branch ? t[place_of_sum(options)] : Tensor{},
                    .gain = t["gain"],
                    .bias = t["bias"],
                    .y = t["y"],
                    .mean = t["mean"],
                    .rstd = t["rstd"],
                    .above_one = options.above_one});
}

// y and sum have gradients of their own, as where a residual stream continues beside the norm.
Gradient norm_gradient(const NormOptions& options) {
  Gradient gradient{.inputs = {"x", "gain"}, .outputs = {"y"}};
  const bool branch = options.sum == SumIs::kApart;
  if (options.has_bias()) gradient.inputs.push_back("bias");
  if (branch) {
    gradient.inputs.push_back("branch");
    gradient.outputs.push_back("sum");
  }
  gradient.backward = [options, branch](Ops& ops, const Tensors& t) {
    ops.run(ops::NormBackward{.kind = options.kind,
                              .dy = t["dy"],
                              .sum = branch ? t["sum"] : t["x"],
                              .gain = t["gain"],
                              .mean = t["mean"],
                              .rstd = t["rstd"],
                              .dresidual = t["dsum"],
                              .dsum = t["dx"],
                              .dropout = options.dropping(),
                              .dbranch = t["dbranch"],
                              .dgain = t["dgain"],
                              .dbias = t["dbias"],
                              .above_one = options.above_one});
  };
  return gradient;
}

OpCase norm_case(DType dtype, std::int64_t rows, std::int64_t width, const NormOptions& options) {
  OpCase one;
  one.name = fmt::format("{} x {}, {}", rows, width, options.text());
  const Shape shape{rows, width};
  const Fill fill = normal(1, 0.5);
  // Dropout's 1 / (1 - p) is rounded before it multiplies the branch, which shows where the two
  // summands nearly cancel: with p at most 0.5 and a branch of at most 3.9, 7.8 units of f32, and
  // as many again where product and sum are not fused.
  const Tolerance of_sum{.relative = 4, .noise = options.dropout > 0 ? 16.0 : 0.0};
  const std::string sum = place_of_sum(options);
  const auto summand = [&](const char* field) {
    return sum == field ? updated(field, dtype, shape, fill, of_sum)
                        : input(field, dtype, shape, fill);
  };
  one.fields = parameter_fields(dtype, width, options);
  one.fields.push_back(summand("x"));
  if (options.sum != SumIs::kNone) one.fields.push_back(summand("branch"));
  if (options.sum == SumIs::kApart) one.fields.push_back(output("sum", dtype, shape, of_sum));
  // A row of one element minus its mean is 0, and what is left of it is divided by the root of
  // epsilon.
  const double noise = (width < 4 ? 2000 : 32) + 4 * std::sqrt(static_cast<double>(width));
  one.fields.push_back(output("y", dtype, shape, {.relative = 4, .noise = noise, .coarse = 8}));
  const double statistics_noise = noise + flipped(dtype, width);
  if (options.kind == NormKind::kLayer) {
    one.fields.push_back(output("mean", statistic(dtype), {rows}, {.noise = statistics_noise}));
  }
  one.fields.push_back(
      output("rstd", statistic(dtype), {rows}, {.relative = 32, .noise = statistics_noise}));
  one.run = [options](Ops& ops, const Tensors& t) { run_norm(ops, t, options); };
  if (options.sum == SumIs::kNone || options.sum == SumIs::kApart) {
    one.gradient = norm_gradient(options);
  }
  return one;
}

std::vector<OpCase> norm_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const auto& [rows, width] : kOddNorms) {
    for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
      cases.push_back(norm_case(dtype, rows, width, {.kind = kind}));
      cases.push_back(
          norm_case(dtype, rows, width, {.kind = kind, .sum = SumIs::kApart, .dropout = 0.1}));
    }
  }
  cases.push_back(norm_case(dtype, 5, 37, {.bias = false}));
  cases.push_back(norm_case(dtype, 5, 37, {.sum = SumIs::kApart}));
  cases.push_back(norm_case(dtype, 5, 37, {.sum = SumIs::kX}));
  cases.push_back(norm_case(dtype, 5, 37, {.sum = SumIs::kBranch, .dropout = 0.5}));
  cases.push_back(norm_case(dtype, 5, 37, {.above_one = true}));
  for (const std::int64_t width : {1, 17, 67, 1031}) {
    cases.push_back(norm_case(dtype, 3, width, {.kind = NormKind::kRms, .above_one = true}));
  }
  cases.push_back(
      norm_case(dtype, 5, 37,
                {.kind = NormKind::kRms, .sum = SumIs::kApart, .dropout = 0.1, .above_one = true}));
  return cases;
}

OpCase norm_typical(DType dtype) {
  return norm_case(dtype, Typical::kRows, Typical::kWidth, {.sum = SumIs::kApart});
}

std::vector<OpCase> norm_large(DType dtype) {
  return {norm_case(dtype, Large::kRows, Typical::kWidth, {.sum = SumIs::kApart}),
          norm_case(dtype, Large::kLlamaRows, Large::kLlamaWidth,
                    {.kind = NormKind::kRms, .sum = SumIs::kApart})};
}

// ---- norm_backward

enum class DSumIs { kApart, kDy, kDResidual };

struct NormBackwardOptions {
  NormOptions norm;
  bool residual = false;
  DSumIs dsum = DSumIs::kApart;
  DType gradient = DType::kF32;
  bool overwrite = false;  // the gradients of parameters
};

std::string place_of_dsum(const NormBackwardOptions& options) {
  return options.dsum == DSumIs::kDy          ? "dy"
         : options.dsum == DSumIs::kDResidual ? "dresidual"
                                              : "dsum";
}

OpCase norm_backward_case(DType dtype, std::int64_t rows, std::int64_t width,
                          const NormBackwardOptions& options) {
  OpCase one;
  const NormOptions& norm = options.norm;
  const std::string place = place_of_dsum(options);
  one.name = fmt::format("{} x {}, {}{}, dsum at {}, gradients {}{}", rows, width, norm.text(),
                         options.residual ? ", residual" : "", place, name(options.gradient),
                         options.overwrite ? ", overwrite" : "");
  const Shape shape{rows, width};
  const double noise = (width < 4 ? 8000 : 64) + 4 * std::sqrt(static_cast<double>(width));
  const Tolerance of_dsum{.noise = noise};
  const auto incoming = [&](const char* field) {
    return place == field ? updated(field, dtype, shape, normal(), of_dsum)
                          : input(field, dtype, shape, normal());
  };
  one.fields = {incoming("dy"), input("sum", dtype, shape, normal(1, 0.5)),
                input("gain", dtype, {width}, norm.gains()),
                input("rstd", statistic(dtype), {rows}, uniform(0.5, 1.5))};
  if (norm.kind == NormKind::kLayer) {
    one.fields.push_back(input("mean", statistic(dtype), {rows}, normal(0.1)));
  }
  if (options.residual) one.fields.push_back(incoming("dresidual"));
  if (place == "dsum") one.fields.push_back(output("dsum", dtype, shape, of_dsum));
  if (norm.dropout > 0) {
    // It may be made of dsum before or after that was rounded.
    one.fields.push_back(output("dbranch", dtype, shape, {.relative = 8, .noise = 4 * noise}));
  }
  const double root = std::sqrt(static_cast<double>(rows));
  const Tolerance of_parameters{.noise = (width < 4 ? 8000 : 32) + 8 * root * root};
  const auto parameter = [&](const char* field) {
    return options.overwrite ? output(field, options.gradient, {width}, of_parameters)
                             : updated(field, options.gradient, {width}, normal(), of_parameters);
  };
  one.fields.push_back(parameter("dgain"));
  if (norm.has_bias()) one.fields.push_back(parameter("dbias"));
  // The statistics are those of the sum.
  one.prepare = [norm](Ops&, const Tensors& t) {
    const Tensor sum = t["sum"];
    if (!ops::is_given(sum)) return;
    const auto reference = make_reference_ops();
    std::vector<std::byte> y(sum.bytes());
    reference->run(ops::Norm{.kind = norm.kind,
                             .x = sum,
                             .gain = t["gain"],
                             .y = Tensor(y.data(), sum.dtype(), sum.shape()),
                             .mean = t["mean"],
                             .rstd = t["rstd"]});
  };
  one.run = [norm, place, overwrite = options.overwrite](Ops& ops, const Tensors& t) {
    ops.run(ops::NormBackward{.kind = norm.kind,
                              .dy = t["dy"],
                              .sum = t["sum"],
                              .gain = t["gain"],
                              .mean = t["mean"],
                              .rstd = t["rstd"],
                              .dresidual = t["dresidual"],
                              .dsum = t[place],
                              .dropout = norm.dropping(),
                              .dbranch = t["dbranch"],
                              .dgain = t["dgain"],
                              .dbias = t["dbias"],
                              .overwrite = overwrite,
                              .above_one = norm.above_one});
  };
  one.scratch = [rows, width](const Ops& ops) { return ops.norm_scratch(rows, width); };
  return one;
}

std::vector<OpCase> norm_backward_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const auto& [rows, width] : kOddNorms) {
    for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
      cases.push_back(norm_backward_case(dtype, rows, width, {.norm = {.kind = kind}}));
      cases.push_back(norm_backward_case(
          dtype, rows, width,
          {.norm = {.kind = kind, .dropout = 0.1}, .residual = true, .gradient = dtype}));
      cases.push_back(norm_backward_case(
          dtype, rows, width, {.norm = {.kind = kind}, .gradient = dtype, .overwrite = true}));
    }
  }
  cases.push_back(norm_backward_case(dtype, 131, 9, {.norm = {.bias = false}}));
  cases.push_back(norm_backward_case(dtype, 13, 37, {.dsum = DSumIs::kDy, .gradient = dtype}));
  cases.push_back(norm_backward_case(dtype, 13, 37,
                                     {.norm = {.kind = NormKind::kRms, .dropout = 0.25},
                                      .residual = true,
                                      .dsum = DSumIs::kDResidual}));
  cases.push_back(norm_backward_case(dtype, 13, 37, {.norm = {.above_one = true}}));
  for (const std::int64_t width : {1, 17, 67, 1031}) {
    cases.push_back(norm_backward_case(dtype, 3, width,
                                       {.norm = {.kind = NormKind::kRms, .above_one = true},
                                        .residual = true,
                                        .gradient = dtype}));
  }
  return cases;
}

OpCase norm_backward_typical(DType dtype) {
  return norm_backward_case(dtype, Typical::kRows, Typical::kWidth, {.residual = true});
}

std::vector<OpCase> norm_backward_large(DType dtype) {
  std::vector<OpCase> cases = {
      norm_backward_case(dtype, Large::kRows, Typical::kWidth, {.residual = true}),
      norm_backward_case(dtype, Large::kLlamaRows, Large::kLlamaWidth,
                         {.norm = {.kind = NormKind::kRms}, .residual = true})};
  for (OpCase& one : cases) {
    // The statistics by the device itself; dsum is written by backward anyway.
    const NormKind kind = one.find("mean") != nullptr ? NormKind::kLayer : NormKind::kRms;
    one.prepare = [kind](Ops& ops, const Tensors& t) {
      ops.run(ops::Norm{.kind = kind,
                        .x = t["sum"],
                        .gain = t["gain"],
                        .y = t["dsum"],
                        .mean = t["mean"],
                        .rstd = t["rstd"]});
    };
  }
  return cases;
}

// ---- head_norm: of heads that lie in packed rows

struct HeadRows {
  std::int64_t rows, heads, head_size;
  std::int64_t first = 0;
  bool in_place = false;
  std::int64_t further = 2;  // columns behind the heads

  Shape shape() const { return {rows, first + heads * head_size + further}; }
};

OpCase head_norm_case(DType dtype, const HeadRows& of) {
  OpCase one;
  one.name = fmt::format("{} x {} heads of {} from {}{}", of.rows, of.heads, of.head_size, of.first,
                         of.in_place ? ", in place" : "");
  const double noise =
      (of.head_size < 4 ? 2000 : 32) + 4 * std::sqrt(static_cast<double>(of.head_size));
  const Tolerance tolerance{.relative = 4, .noise = noise, .coarse = 8};
  const Fill fill = normal(1, 0.5);
  one.fields = {input("gain", dtype, {of.head_size}, normal(0.25, 1))};
  if (of.in_place) {
    one.fields.push_back(updated("x", dtype, of.shape(), fill, tolerance, Freedom::kLast));
  } else {
    one.fields.push_back(input("x", dtype, of.shape(), fill, Freedom::kLast));
    one.fields.push_back(updated("y", dtype, of.shape(), normal(), tolerance, Freedom::kLast));
  }
  one.fields.push_back(output("rstd", statistic(dtype), {of.rows, of.heads},
                              {.relative = 32, .noise = noise + flipped(dtype, of.head_size)}));
  one.run = [of](Ops& ops, const Tensors& t) {
    ops.run(ops::HeadNorm{.heads = of.heads,
                          .head_size = of.head_size,
                          .x = {t["x"], of.first},
                          .gain = t["gain"],
                          .y = {t[of.in_place ? "x" : "y"], of.first},
                          .rstd = t["rstd"]});
  };
  if (of.in_place) return one;
  // Beside the heads y keeps what it held, whose gradient is no concern of x.
  one.gradient = Gradient{
      .inputs = {"x", "gain"}, .outputs = {"y"}, .backward = [of](Ops& ops, const Tensors& t) {
        ops.run(ops::HeadNormBackward{.heads = of.heads,
                                      .head_size = of.head_size,
                                      .x = {t["x"], of.first},
                                      .gain = t["gain"],
                                      .rstd = t["rstd"],
                                      .dy = {t["dy"], of.first},
                                      .dx = {t["dx"], of.first},
                                      .dgain = t["dgain"]});
      }};
  return one;
}

constexpr HeadRows kOddHeads[] = {{1, 1, 1},
                                  {3, 2, 17, 4},
                                  {0, 2, 8},
                                  {131, 3, 5, 1},
                                  {7, 6, 64},
                                  {67, 1, 131, 3},
                                  {7, 5, 64, 8, false, 8},
                                  {35, 2, 128, 0, false, 0},
                                  {3, 1, 264, 16, false, 0}};

std::vector<OpCase> head_norm_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (HeadRows of : kOddHeads) {
    cases.push_back(head_norm_case(dtype, of));
    of.in_place = true;
    cases.push_back(head_norm_case(dtype, of));
  }
  return cases;
}

constexpr HeadRows kTypicalHeads{Typical::kRows, Typical::kHeads, Typical::kHeadSize, 0, false, 0};

OpCase head_norm_typical(DType dtype) { return head_norm_case(dtype, kTypicalHeads); }

// Queries of a Qwen3.
constexpr HeadRows kLargeHeads{Large::kLlamaRows, 32, 128, 0, false, 2048};

std::vector<OpCase> head_norm_large(DType dtype) { return {head_norm_case(dtype, kLargeHeads)}; }

OpCase head_norm_backward_case(DType dtype, DType gradient, const HeadRows& of) {
  OpCase one;
  one.name = fmt::format("{} x {} heads of {} from {}{}, gradients {}", of.rows, of.heads,
                         of.head_size, of.first, of.in_place ? ", in place" : "", name(gradient));
  const double noise =
      (of.head_size < 4 ? 2000 : 64) + 8 * std::sqrt(static_cast<double>(of.head_size));
  const Tolerance tolerance{.relative = 4, .noise = 4 * noise, .coarse = 4};
  one.fields = {input("gain", dtype, {of.head_size}, normal(0.25, 1)),
                input("x", dtype, of.shape(), normal(1, 0.5), Freedom::kLast),
                input("rstd", statistic(dtype), {of.rows, of.heads}, uniform(0.5, 1.5))};
  if (of.in_place) {
    one.fields.push_back(updated("dy", dtype, of.shape(), normal(), tolerance, Freedom::kLast));
  } else {
    one.fields.push_back(input("dy", dtype, of.shape(), normal(), Freedom::kLast));
    one.fields.push_back(updated("dx", dtype, of.shape(), normal(), tolerance, Freedom::kLast));
  }
  const double rows = static_cast<double>(of.rows * of.heads);
  one.fields.push_back(updated("dgain", gradient, {of.head_size}, normal(),
                               {.noise = (of.head_size < 4 ? 8000 : 64) + 16 * rows}));
  one.run = [of](Ops& ops, const Tensors& t) {
    ops.run(ops::HeadNormBackward{.heads = of.heads,
                                  .head_size = of.head_size,
                                  .x = {t["x"], of.first},
                                  .gain = t["gain"],
                                  .rstd = t["rstd"],
                                  .dy = {t["dy"], of.first},
                                  .dx = {t[of.in_place ? "dy" : "dx"], of.first},
                                  .dgain = t["dgain"]});
  };
  one.scratch = [of](const Ops& ops) { return ops.norm_scratch(of.rows, of.head_size); };
  return one;
}

std::vector<OpCase> head_norm_backward_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (HeadRows of : kOddHeads) {
    cases.push_back(head_norm_backward_case(dtype, dtype, of));
    of.in_place = true;
    cases.push_back(head_norm_backward_case(dtype, dtype == DType::kF64 ? dtype : DType::kF32, of));
  }
  return cases;
}

OpCase head_norm_backward_typical(DType dtype) {
  return head_norm_backward_case(dtype, dtype, kTypicalHeads);
}

std::vector<OpCase> head_norm_backward_large(DType dtype) {
  return {head_norm_backward_case(dtype, dtype, kLargeHeads)};
}

}  // namespace

std::vector<OpDescription> describe_norm() {
  return {{"norm", norm_cases, norm_typical, {norm_large, kRowsBar}},
          {"norm_backward",
           norm_backward_cases,
           norm_backward_typical,
           {norm_backward_large, kRowsBar}},
          {"head_norm", head_norm_cases, head_norm_typical, {head_norm_large}},
          {"head_norm_backward",
           head_norm_backward_cases,
           head_norm_backward_typical,
           {head_norm_backward_large}}};
}

}  // namespace lockstep::bench
