// The bench of operations: what is timed, what it is compared with, what is reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "lockstep/bench/ops/bench_ops.h"
#include "lockstep/bench/ops/fill.h"
#include "lockstep/bench/ops/peak_loops.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

const OpDescription& description(std::string_view name) {
  for (const OpDescription& one : op_descriptions()) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no such description");
}

Floor floor_of(double bytes_per_second, double flops_per_second) {
  return {{.threads = 2, .copy = bytes_per_second},
          {{DType::kF32, {2, "some fma", flops_per_second}}}};
}

TEST(OpDescriptions, HaveNamesOfTheirOwnAndCasesOfEveryType) {
  std::set<std::string> names;
  // Scales and counts are few, however large the model.
  const std::set<std::string> small = {"update_scaling", "add_counts",
                                       "count_targets",  "balance_experts",
                                       "relative_bias",  "relative_bias_backward"};
  for (const OpDescription& one : op_descriptions()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      EXPECT_FALSE(one.cases(dtype).empty()) << one.name;
      EXPECT_GT(one.typical(dtype).bytes(), small.contains(one.name) ? 1e3 : 1e6) << one.name;
    }
  }
  // 44 of Ops, two of them by the row, four with windows or parts of heads, two with biases by
  // distance, three with shards.
  EXPECT_EQ(names.size(), 55u);
}

TEST(OpDescriptions, CountTheBytesAndFlopsOfTheTypicalCase) {
  const OpCase adam = description("adam").typical(DType::kF32);
  EXPECT_DOUBLE_EQ(adam.bytes(), 28.0 * 124439808);
  EXPECT_EQ(adam.flops, 0);
  const OpCase linear = description("linear").typical(DType::kBF16);
  EXPECT_DOUBLE_EQ(linear.flops, 2.0 * 4096 * 768 * 3072);
  const OpCase attention = description("attention").typical(DType::kF32);
  EXPECT_DOUBLE_EQ(attention.flops, 4.0 * 4 * 12 * 1024 * 1024 * 64 / 2);
}

TEST(OpTime, IsSetAgainstTheLongerOfItsFloors) {
  OpTime time{.op = "linear", .flops = 1e9, .bytes = 1e6, .samples = {0.1, 0.2, 0.4}};
  const Floor fast_memory = floor_of(1e9, 1e10);
  EXPECT_TRUE(time.is_compute_bound(fast_memory));
  EXPECT_DOUBLE_EQ(time.percent_of_floor(fast_memory), 50);
  const Floor slow_memory = floor_of(1e7, 1e12);
  EXPECT_FALSE(time.is_compute_bound(slow_memory));
  EXPECT_DOUBLE_EQ(time.floor_seconds(slow_memory), 0.1);
}

TEST(OpTime, IsToldToPeopleAndPrograms) {
  const OpTime good{
      .op = "adam", .case_name = "124M", .threads = 2, .bytes = 2e9, .samples = {0.1, 0.1, 0.1}};
  const OpTime bad{.op = "norm", .problem = "norm: not here"};
  const Floor floor = floor_of(40e9, 1e12);
  EXPECT_THAT(ops_heading("cpu", floor), HasSubstr("memory streams at 40 GB/s"));
  EXPECT_THAT(ops_heading("cpu", floor), HasSubstr("f32 multiplies at 1000.0 GFLOP/s (some fma)"));
  EXPECT_THAT(ops_line(good, floor), HasSubstr("20.00      50 % memory"));
  EXPECT_THAT(ops_line(bad, floor), HasSubstr("FAILED: norm: not here"));
  const auto json = nlohmann::json::parse(ops_json({good, bad}, "cpu", floor));
  EXPECT_EQ(json.at(0).at("op"), "adam");
  EXPECT_EQ(json.at(0).at("implementation"), "cpu");
  EXPECT_DOUBLE_EQ(json.at(0).at("percent_of_floor"), 50);
  EXPECT_DOUBLE_EQ(json.at(0).at("median_us"), 1e5);
  EXPECT_TRUE(json.at(1).at("median_us").is_null());
  EXPECT_EQ(json.at(1).at("problem"), "norm: not here");
}

TEST(TimeOp, TakesSamplesAndMakesAnErrorItsProblem) {
  static const auto small = [](DType dtype) {
    OpCase one;
    one.name = "small";
    one.fields = {{.name = "x", .role = Role::kUpdated, .dtype = dtype, .shape = {5}}};
    one.run = [](Ops& ops, const Tensors& t) { ops.run(ops::Scale{.x = t["x"]}); };
    return one;
  };
  const auto reference = make_reference_ops();
  const OpsPlan plan{.seconds = 0};
  const OpTime time = time_op(*reference, {"scale", nullptr, small}, DType::kF32, plan, 1000);
  EXPECT_EQ(time.problem, "");
  EXPECT_GE(time.samples.size(), 5u);
  EXPECT_DOUBLE_EQ(time.bytes, 40);
  const OpTime wrong = time_op(*reference, {"scale", nullptr, small}, DType::kI32, plan, 1000);
  EXPECT_TRUE(wrong.samples.empty());
  EXPECT_THAT(wrong.problem, HasSubstr("scale: x is [5] i32"));
}

TEST(Peak, RunsALoopOfThisCpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const PeakLoop loop = peak_loop(dtype);
    EXPECT_FALSE(loop.instruction.empty());
    EXPECT_GT(loop.flops_per_round, 0);
    loop.run(10);
  }
}

TEST(Fill, IsTheSameForASeedAndRepeatsItsBeginning) {
  constexpr std::int64_t kCount = (1 << 18) * 2 + 5;
  std::vector<float> first(kCount), second(kCount);
  fill(tensor_of(std::span(first)), normal(2, 1), 3);
  fill(tensor_of(std::span(second)), normal(2, 1), 3);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[7], first[(1 << 18) + 7]);
  EXPECT_NE(first[7], first[8]);
  fill(tensor_of(std::span(second)), normal(2, 1), 4);
  EXPECT_NE(first, second);
}

TEST(Fill, KeepsToTheRangesOfItsKind) {
  std::vector<std::int32_t> drawn(5000);
  fill(tensor_of(std::span(drawn)), targets(7), 1);
  std::set<std::int32_t> values(drawn.begin(), drawn.end());
  EXPECT_EQ(values, (std::set<std::int32_t>{ops::kNoTarget, 0, 1, 2, 3, 4, 5, 6}));
  std::vector<std::uint8_t> bits(1000);
  fill(tensor_of(std::span(bits)), mask(0.25), 1);
  EXPECT_NEAR(std::accumulate(bits.begin(), bits.end(), 0.0), 250, 50);
}

}  // namespace
}  // namespace lockstep::bench
