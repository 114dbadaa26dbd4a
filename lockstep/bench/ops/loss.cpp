#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

constexpr double kFactor = 0.75;  // a float, so that finite differences see the same

// Gradients are probabilities, most of them tiny, so they are measured by their own size.
double relative_of_exp(DType dtype) { return is_narrow(dtype) ? 2 : 64; }

// Of logits, which lie within a soft cap where there is one.
Fill logits_within(double softcap) { return softcap > 0 ? uniform(-softcap, softcap) : normal(2); }

std::string capped_text(double softcap) {
  return softcap > 0 ? fmt::format(", capped at {}", softcap) : "";
}

OpCase cross_entropy_case(DType dtype, std::int64_t rows, std::int64_t classes, bool gradient,
                          double softcap = 0) {
  OpCase one;
  one.name =
      fmt::format("{} x {}{}{}", rows, classes, gradient ? ", gradient" : "", capped_text(softcap));
  const Shape shape{rows, classes};
  const Fill fill = logits_within(softcap);
  one.fields = {input("targets", DType::kI32, {rows}, targets(classes)),
                output("losses", statistic(dtype), {rows}, {.relative = 8, .noise = 64})};
  if (gradient) {
    one.fields.push_back(updated("logits", dtype, shape, fill,
                                 {.relative = relative_of_exp(dtype), .noise = 1}, Freedom::kLast));
  } else {
    one.fields.push_back(input("logits", dtype, shape, fill, Freedom::kLast));
  }
  const auto run = [softcap](Ops& ops, const Tensor& logits, const Tensors& t, bool with_gradient) {
    ops.run(ops::CrossEntropy{.logits = logits,
                              .targets = t["targets"],
                              .losses = t["losses"],
                              .gradient = with_gradient,
                              .factor = static_cast<float>(kFactor),
                              .softcap = softcap});
  };
  one.run = [run, gradient](Ops& ops, const Tensors& t) { run(ops, t["logits"], t, gradient); };
  if (gradient || classes > 1000 || softcap > 0) return one;
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

// For finite differences: the losses of logits that are capped first, whose gradient is that of the
// logits before.
OpCase capping_case(std::int64_t rows, std::int64_t classes, double softcap) {
  OpCase one;
  one.name = fmt::format("{} x {}{}, from before", rows, classes, capped_text(softcap));
  const Shape shape{rows, classes};
  one.fields = {input("targets", DType::kI32, {rows}, targets(classes)),
                input("before", DType::kF64, shape, normal(2)),
                output("logits", DType::kF64, shape, {}),
                output("losses", DType::kF64, {rows}, {})};
  const auto run = [softcap](Ops& ops, const Tensors& t, const Tensor& logits, bool gradient) {
    copy(logits, t["before"]);
    ops.run(ops::SoftCap{.x = logits, .cap = softcap});
    ops.run(ops::CrossEntropy{.logits = logits,
                              .targets = t["targets"],
                              .losses = t["losses"],
                              .gradient = gradient,
                              .factor = static_cast<float>(kFactor),
                              .softcap = softcap});
  };
  one.run = [run](Ops& ops, const Tensors& t) { run(ops, t, t["logits"], false); };
  one.gradient =
      Gradient{.inputs = {"before"},
               .outputs = {"losses"},
               .backward = [run](Ops& ops, const Tensors& t) { run(ops, t, t["dbefore"], true); },
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
  for (const double softcap : {1.0, 5.0}) {
    for (const auto& [rows, classes] : {std::pair{1, 1}, {3, 17}, {31, 131}}) {
      cases.push_back(cross_entropy_case(dtype, rows, classes, true, softcap));
      if (dtype == DType::kF64) cases.push_back(capping_case(rows, classes, softcap));
    }
  }
  cases.push_back(cross_entropy_case(dtype, 5, 64, false, 3));
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

// ---- of shards

// Logits `classes` from `first` on of `all`, and this one among `shards`.
struct LogitShard {
  std::int64_t rows, classes, first, all;
  std::int64_t shards = 2, shard = 0;

  std::string text() const {
    return fmt::format("{} x {} from {} on of {}", rows, classes, first, all);
  }
};

void run_statistics(Ops& ops, const Tensors& t, const LogitShard& of, const Tensor& statistics) {
  ops.run(ops::LogitStatistics{.logits = t["logits"],
                               .targets = t["targets"],
                               .first_class = of.first,
                               .all_classes = of.all,
                               .statistics = statistics});
}

OpCase statistics_case(DType dtype, const LogitShard& of) {
  OpCase one;
  one.name = of.text();
  one.fields = {
      input("targets", DType::kI32, {of.rows}, targets(of.all)),
      input("logits", dtype, {of.rows, of.classes}, normal(2), Freedom::kLast),
      output("statistics", statistic(dtype), {of.rows, ops::kLogitStatistics}, {.relative = 64})};
  one.run = [of](Ops& ops, const Tensors& t) { run_statistics(ops, t, of, t["statistics"]); };
  return one;
}

// The statistics of the other shards are made up.
template <class S>
void fill_others(const Tensors& t, const LogitShard& of) {
  const auto statistics = t["statistics"].as<S>();
  const auto targets = t["targets"].as<const std::int32_t>();
  const std::int64_t has_target = of.shard == 0 ? 1 : 0;  // where this shard has not
  for (std::int64_t shard = 0; shard < of.shards; ++shard) {
    if (shard == of.shard) continue;
    for (std::int64_t row = 0; row < of.rows; ++row) {
      const std::int32_t target = targets[static_cast<std::size_t>(row)];
      const bool own = target >= of.first && target < of.first + of.classes;
      const S largest = static_cast<S>(0.5 * static_cast<double>(shard));
      const S one[] = {largest, static_cast<S>(3 + shard),
                       shard == has_target && !own ? largest - static_cast<S>(0.25) : S{0}};
      const std::int64_t at = (shard * of.rows + row) * ops::kLogitStatistics;
      for (std::size_t i = 0; i < std::size(one); ++i) {
        statistics[static_cast<std::size_t>(at) + i] = one[i];
      }
    }
  }
}

OpCase shard_case(DType dtype, const LogitShard& of, bool gradient, double softcap = 0) {
  OpCase one;
  one.name = of.text() + (gradient ? ", gradient" : "") + capped_text(softcap);
  const Fill fill = logits_within(softcap);
  const Shape shape{of.rows, of.classes};
  const DType statistics = statistic(dtype);
  one.fields = {input("targets", DType::kI32, {of.rows}, targets(of.all)),
                input("statistics", statistics, {of.shards, of.rows, ops::kLogitStatistics},
                      uniform(1, 2), Freedom::kFirst),
                output("losses", statistics, {of.rows}, {.relative = 8, .noise = 64}),
                gradient ? updated("logits", dtype, shape, fill,
                                   {.relative = relative_of_exp(dtype), .noise = 1}, Freedom::kLast)
                         : input("logits", dtype, shape, fill, Freedom::kLast)};
  one.prepare = [of, statistics](Ops& ops, const Tensors& t) {
    run_statistics(ops, t, of, t["statistics"].row(of.shard));
    if (statistics == DType::kF64) return fill_others<double>(t, of);
    fill_others<float>(t, of);
  };
  one.run = [of, gradient, softcap](Ops& ops, const Tensors& t) {
    ops.run(ops::CrossEntropy{.logits = t["logits"],
                              .targets = t["targets"],
                              .losses = t["losses"],
                              .gradient = gradient,
                              .factor = static_cast<float>(kFactor),
                              .first_class = of.first,
                              .all_classes = of.all,
                              .statistics = t["statistics"],
                              .softcap = softcap});
  };
  return one;
}

constexpr LogitShard kOddShards[] = {{1, 1, 0, 1, 1},
                                     {3, 17, 17, 50, 3, 1},
                                     {17, 3, 6, 9, 3, 2},
                                     {0, 7, 7, 20, 2, 1},
                                     {5, 64, 64, 256, 4, 1},
                                     {31, 131, 0, 1000, 40, 0},
                                     {3, 12565, 37692, 50257, 4, 3}};

std::vector<OpCase> statistics_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const LogitShard& of : kOddShards) cases.push_back(statistics_case(dtype, of));
  return cases;
}

std::vector<OpCase> shard_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const LogitShard& of : kOddShards) {
    cases.push_back(shard_case(dtype, of, true));
    cases.push_back(shard_case(dtype, of, false));
    if (of.classes < 1000) cases.push_back(shard_case(dtype, of, true, 4));
  }
  return cases;
}

// One of four ranks.
constexpr LogitShard kTypicalShard{Typical::kLogitRows,
                                   Typical::kVocabulary / 4,
                                   Typical::kVocabulary / 4,
                                   Typical::kVocabulary,
                                   4,
                                   1};
constexpr LogitShard kLargeShard{
    8192, Large::kLlamaVocabulary / 4, Large::kLlamaVocabulary / 4, Large::kLlamaVocabulary, 4, 1};

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
          {"logit_statistics",
           statistics_cases,
           [](DType dtype) { return statistics_case(dtype, kTypicalShard); },
           {[](DType dtype) { return std::vector{statistics_case(dtype, kLargeShard)}; }}},
          {"cross_entropy_shard",
           shard_cases,
           [](DType dtype) { return shard_case(dtype, kTypicalShard, true); },
           {[](DType dtype) { return std::vector{shard_case(dtype, kLargeShard, true)}; }},
           "cross_entropy"},
          {"squared_error", squared_error_cases, squared_error_typical, {squared_error_large}}};
}

}  // namespace lockstep::bench
