// What the training bench makes of its figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/system/resident.h"
#include "lockstep/bench/train/bench_train.h"
#include "lockstep/bench/train/products.h"
#include "lockstep/plan/arithmetic.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

const TrainWork kWork{.model = "gpt2-124m",
                      .precision = "bf16",
                      .recompute = "none",
                      .batch = 4,
                      .sequence = 1000,
                      .threads = 2,
                      .flops = 3e12};

std::vector<TrainResult> results() {
  TrainResult ours{.implementation = "lockstep",
                   .seconds = {1.9, 2, 2.5},
                   .first_loss = 10.8,
                   .last_loss = 9.5,
                   .peak_bytes = 3 << 20,
                   .planned_bytes = 2 << 20,
                   .gemm_flops = 2e12};
  TrainResult eager{.implementation = "pytorch-eager",
                    .seconds = {4, 5, 6},
                    .peak_bytes = 6 << 20,
                    .gemm_flops = 1.5e12};
  TrainResult compiled{.implementation = "pytorch-compile", .problem = "pytorch-compile ended"};
  return {ours, eager, compiled};
}

TEST(TrainReport, HasAnObjectPerImplementationWithEveryFigure) {
  const auto json = nlohmann::json::parse(train_json(kWork, results()));
  ASSERT_EQ(json.size(), 3u);
  const auto& ours = json[0];
  EXPECT_EQ(ours["implementation"], "lockstep");
  EXPECT_EQ(ours["model"], "gpt2-124m");
  EXPECT_EQ(ours["precision"], "bf16");
  EXPECT_EQ(ours["batch"], 4);
  EXPECT_EQ(ours["seq"], 1000);
  EXPECT_EQ(ours["threads"], 2);
  EXPECT_DOUBLE_EQ(ours["tokens_per_s"], 2000);
  EXPECT_EQ(ours["peak_bytes"], 3 << 20);
  EXPECT_EQ(ours["planned_bytes"], 2 << 20);
  EXPECT_DOUBLE_EQ(ours["gemm_flops"], 2e12);
  EXPECT_DOUBLE_EQ(ours["step_flops"], 1.5e12);
  EXPECT_EQ(json[1]["planned_bytes"], nullptr);
  EXPECT_EQ(json[2]["tokens_per_s"], nullptr);
  EXPECT_EQ(json[2]["problem"], "pytorch-compile ended");
}

TEST(TrainReport, ComparesWithTheMediansOfThePeers) {
  const std::string text = train_table(kWork, results());
  EXPECT_THAT(text, HasSubstr("2000.0"));
  EXPECT_THAT(text, HasSubstr("75.0 %"));
  EXPECT_THAT(text, HasSubstr("against pytorch-eager    2.50 x its tokens/s, 0.50 x its peak "
                              "memory  (the fastest peer)"));
  EXPECT_THAT(text, HasSubstr("pytorch-compile ended"));
}

TEST(TrainReport, OursAloneAndOursFailedCanBeTold) {
  auto some = results();
  some.resize(1);
  EXPECT_THAT(train_table(kWork, some), ::testing::Not(HasSubstr("against")));
  some[0].seconds.clear();
  some[0].problem = "lockstep ended (SIGKILL)";
  EXPECT_THAT(train_table(kWork, some), HasSubstr("SIGKILL"));
  EXPECT_EQ(nlohmann::json::parse(train_json(kWork, some))[0]["step_flops"], nullptr);
}

TEST(TrainProducts, AreAllThatTheModelMultipliesButAttention) {
  for (const char* model : {"gpt2-124m", "llama-7b", "bert-base", "qwen3-0.6b", "pythia-160m"}) {
    const plan::ModelShape shape = nn::trainable(plan::find_model(model));
    const nn::Setup setup{.shape = {.batch = 3, .sequence = 128}, .dtype = DType::kBF16};
    double flops = 0;
    for (const Product& one : products_of(shape, setup)) {
      flops += 2 * one.count * static_cast<double>(one.shape.rows) *
               static_cast<double>(one.shape.in) * static_cast<double>(one.shape.out);
    }
    const plan::TokenFlops token = plan::count_flops(shape, 128);
    EXPECT_NEAR(flops / (3 * 128 * (token.layers + token.head)), 1, 1e-12) << model;
  }
}

TEST(TrainProducts, AreTimed) {
  const auto ops = make_reference_ops();
  const std::vector<Product> products{
      {.shape = {.rows = 3, .in = 5, .out = 7, .dtype = DType::kBF16}, .count = 2}};
  const double rate = measure_products(products, *ops);
  EXPECT_GT(rate, 1e3);
  EXPECT_LT(rate, 1e12);
}

TEST(Resident, SeesMemoryThatWasTouched) {
  const std::size_t before = peak_resident_bytes();
  ASSERT_GT(before, 0u);
  const std::vector<char> memory(64 << 20, 'x');
  EXPECT_GT(peak_resident_bytes(), before + (32 << 20)) << memory[12345];
}

}  // namespace
}  // namespace lockstep::bench
