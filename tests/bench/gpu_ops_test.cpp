// The bench of operations on a GPU, as far as a CPU can run it: which cases there are, how batches
// are timed, what is reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/bench/ops/gpu.h"
#include "lockstep/bench/ops/timed_case.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const OpDescription& described(std::string_view name) {
  for (const OpDescription& one : op_descriptions()) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no such description");
}

Floor ceiling_of(double bytes_per_second, double flops_per_second) {
  Floor ceiling;
  ceiling.streaming.copy = bytes_per_second;
  ceiling.streaming.array_bytes = std::size_t{2} << 30;
  ceiling.peaks[DType::kBF16] = {0, "a product", flops_per_second};
  return ceiling;
}

TEST(LargeCases, AreThereForEveryOperationAndMoreThanATypicalOne) {
  for (const OpDescription& one : op_descriptions()) {
    ASSERT_NE(one.large.cases, nullptr) << one.name;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const std::vector<OpCase> cases = one.large.cases(dtype);
      ASSERT_FALSE(cases.empty()) << one.name;
      double most = 0;
      for (const OpCase& large : cases) most = std::max(most, large.bytes());
      EXPECT_GE(most, one.typical(dtype).bytes()) << one.name;
    }
  }
}

TEST(LargeCases, CountBytesAsTheirDescriptionsDo) {
  const std::vector<OpCase> adam = described("adam").large.cases(DType::kBF16);
  ASSERT_EQ(adam.size(), 2u);
  // master, both moments read and written in f32, the gradient read, the parameter written
  EXPECT_DOUBLE_EQ(adam[0].bytes(), 28.0 * 124439808);
  EXPECT_DOUBLE_EQ(adam[1].bytes(), 28.0 * 1.5e9);
  const std::vector<OpCase> loss = described("cross_entropy").large.cases(DType::kBF16);
  EXPECT_DOUBLE_EQ(loss[0].bytes(), 8192.0 * (2 * 50304 * 2 + 4 + 4));
}

TEST(LargeCases, HaveTheBarsOfTheirKind) {
  EXPECT_DOUBLE_EQ(described("adam").large.bar, 0.90);
  for (const char* name :
       {"norm", "norm_backward", "activate", "swiglu", "swiglu_backward", "cross_entropy"}) {
    EXPECT_DOUBLE_EQ(described(name).large.bar, 0.85) << name;
  }
  EXPECT_DOUBLE_EQ(described("attention").large.bar, 0);
}

TEST(LargeCases, OfAttentionAreThoseOfAPeerToo) {
  for (const char* name : {"attention", "attention_backward"}) {
    bool has_64 = false, has_128 = false;
    for (const OpCase& one : described(name).large.cases(DType::kBF16)) {
      ASSERT_TRUE(one.attention.has_value()) << one.name;
      EXPECT_TRUE(one.attention->causal);
      has_64 |= one.attention->head_size == 64;
      has_128 |= one.attention->head_size == 128;
    }
    EXPECT_TRUE(has_64 && has_128);
  }
  const OpCase one = described("attention").large.cases(DType::kBF16).front();
  EXPECT_EQ(AttentionPeer::request(*one.attention, true, 20),
            "backward 64 1024 1024 12 12 64 1 bf16 20");
}

TEST(TimedCase, GoesRoundBetweenSetsInWholeRounds) {
  const auto reference = make_reference_ops();
  std::size_t runs = 0;
  std::vector<const std::byte*> seen;
  OpCase one = copy_case(1000);
  const RunCase copies = one.run;
  one.run = [&, copies](Ops& ops, const Tensors& t) {
    ++runs;
    seen.push_back(t["from"].data());
    copies(ops, t);
  };
  TimedCase timed(*reference, one, 5000, 0);
  EXPECT_EQ(timed.sets(), 3u);   // of 2000 bytes, read and written
  EXPECT_EQ(timed.calls(), 3u);  // one round
  runs = 0;
  seen.clear();
  EXPECT_GT(timed.seconds(), 0);
  EXPECT_EQ(runs, 3u);
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_NE(seen[1], seen[2]);
}

TEST(TimeLarge, TakesSamplesAndMakesAnErrorItsProblem) {
  const auto reference = make_reference_ops();
  const OpDescription product{"product", nullptr, nullptr, {nullptr, 0.5}};
  const GpuTiming timing{.seconds = 0, .batch_seconds = 0, .more_than_caches = 1};
  const OpTime time =
      time_large(*reference, product, product_case(DType::kBF16, 8), DType::kBF16, timing);
  EXPECT_EQ(time.problem, "");
  EXPECT_EQ(time.samples.size(), 5u);
  EXPECT_TRUE(std::is_sorted(time.samples.begin(), time.samples.end()));
  EXPECT_DOUBLE_EQ(time.flops, 2.0 * 8 * 8 * 8);
  EXPECT_DOUBLE_EQ(time.bytes, 3.0 * 8 * 8 * 2);
  EXPECT_DOUBLE_EQ(time.bar_percent, 50);
  const OpTime wrong =
      time_large(*reference, product, product_case(DType::kI32, 8), DType::kI32, timing);
  EXPECT_TRUE(wrong.samples.empty());
  EXPECT_THAT(wrong.problem, HasSubstr("linear: "));
}

TEST(GpuReport, SetsBytesAgainstTheCopyAndAttentionAgainstThePeer) {
  const Floor ceiling = ceiling_of(4e12, 800e12);
  OpTime adam{.op = "adam",
              .dtype = DType::kBF16,
              .case_name = "124M",
              .bytes = 3.5e9,
              .samples = {1e-3, 1e-3, 1e-3},
              .bar_percent = 90};
  EXPECT_DOUBLE_EQ(adam.percent_of_copy(ceiling), 87.5);
  EXPECT_THAT(gpu_line(adam, ceiling), HasSubstr("3.50     87.5 % memory   90 % MISSED"));
  OpTime attention{.op = "attention",
                   .dtype = DType::kBF16,
                   .case_name = "64 x 1024",
                   .flops = 100e9,
                   .bytes = 1e6,
                   .samples = {2.5e-4},
                   .peer_samples = {3e-4}};
  EXPECT_THAT(gpu_line(attention, ceiling), HasSubstr("400.0"));
  EXPECT_THAT(gpu_line(attention, ceiling), HasSubstr("50.0 % compute  -            300 us 1.20x"));
  EXPECT_EQ(gpu_bars({adam, attention}, ceiling),
            "\n1 of 2 bars met; missed:\n"
            "  adam bf16, 124M: 87.5 % of the copy, bar 90 %\n");
  adam.samples = {0.9e-3};
  attention.samples = {3.2e-4};
  EXPECT_THAT(gpu_bars({adam, attention}, ceiling),
              HasSubstr("attention bf16, 64 x 1024: 0.94x the peer's speed, bar 1.0x"));
  EXPECT_THAT(gpu_bars({adam, attention}, ceiling), Not(HasSubstr("adam")));
  EXPECT_EQ(gpu_bars({}, ceiling), "");
  EXPECT_THAT(gpu_heading("cuda:0, H200", "cuDNN 9", ceiling),
              HasSubstr("a copy of 2 GiB reads and writes 4.00 TB/s; a product in bf16 runs at "
                        "800.0 TFLOP/s\npeer of attention: cuDNN 9"));
}

TEST(GpuReport, SaysWhyThereIsNoTime) {
  const Floor ceiling = ceiling_of(4e12, 800e12);
  const OpTime failed{
      .op = "norm", .dtype = DType::kBF16, .case_name = "3 x 5", .problem = "no room"};
  EXPECT_THAT(gpu_line(failed, ceiling), HasSubstr("FAILED: 3 x 5: no room"));
  const OpTime alone{.op = "attention",
                     .dtype = DType::kBF16,
                     .case_name = "1 x 1",
                     .bytes = 1,
                     .samples = {1},
                     .peer_problem = "No available kernel"};
  EXPECT_THAT(gpu_line(alone, ceiling), HasSubstr("peer: No available kernel"));
  const auto json = nlohmann::json::parse(ops_json({failed, alone}, "cuda:0", ceiling));
  EXPECT_EQ(json.at(1).at("peer_problem"), "No available kernel");
  EXPECT_FALSE(json.at(1).contains("speed_up"));
}

TEST(GpuReport, SaysWhatThePeerDidDifferently) {
  const Floor ceiling = ceiling_of(4e12, 800e12);
  OpTime beside{.op = "attention",
                .dtype = DType::kBF16,
                .case_name = "1 x 1",
                .bytes = 1,
                .samples = {1},
                .peer_samples = {2}};
  EXPECT_THAT(gpu_line(beside, ceiling), Not(HasSubstr("peer: ")));
  beside.peer_note = "repeats keys and values";
  EXPECT_THAT(gpu_line(beside, ceiling), HasSubstr("  peer: repeats keys and values\n"));
  const auto json = nlohmann::json::parse(ops_json({beside}, "cuda:0", ceiling));
  EXPECT_EQ(json.at(0).at("peer_note"), "repeats keys and values");
}

TEST(GpuReport, WritesBarsAndPeersIntoTheJson) {
  const Floor ceiling = ceiling_of(4e12, 800e12);
  const OpTime time{.op = "attention",
                    .dtype = DType::kBF16,
                    .bytes = 2e9,
                    .samples = {1e-3},
                    .bar_percent = 85,
                    .peer_samples = {2e-3}};
  const auto json = nlohmann::json::parse(ops_json({time}, "cuda:0", ceiling));
  EXPECT_DOUBLE_EQ(json.at(0).at("percent_of_copy"), 50);
  EXPECT_DOUBLE_EQ(json.at(0).at("bar_percent_of_copy"), 85);
  EXPECT_DOUBLE_EQ(json.at(0).at("peer_median_us"), 2000);
  EXPECT_DOUBLE_EQ(json.at(0).at("speed_up"), 2);
}

}  // namespace
}  // namespace lockstep::bench
