// Tokens that a GPU chooses are those that the CPU chooses by the same logits, and rows of a
// product do not depend on the rows beside them.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/sampler.h"
#include "lockstep/tensor/host_view.h"
#include "tests/ops/cuda/gpu_ops.h"

namespace lockstep::ops_test {
namespace {

class CudaSample : public OnLiveGpu<::testing::Test> {};

struct Drawn {
  std::vector<std::int32_t> tokens, positions, lengths;
};

constexpr std::int64_t kLastLength = 9;

// `logits` are [batch, classes].
Drawn draw(Ops& ops, const std::vector<float>& logits, std::int64_t batch, std::int64_t choices,
           const ops::ChoiceOptions& options, DType dtype) {
  const auto classes = static_cast<std::int64_t>(logits.size()) / batch;
  const Device device = ops.device();
  std::vector<float> wide = logits;
  const auto count = static_cast<std::size_t>(batch);
  std::vector<std::int64_t> seeds(count);
  Drawn drawn{.tokens = std::vector<std::int32_t>(count),
              .positions = std::vector<std::int32_t>(count),
              .lengths = std::vector<std::int32_t>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    seeds[i] = static_cast<std::int64_t>(0x9e3779b97f4a7c15u * (i + 1));
    drawn.positions[i] = static_cast<std::int32_t>(7 * i);
    drawn.lengths[i] = static_cast<std::int32_t>(i % 12);
  }
  const Buffer memory(wide.size() * sizeof(float), device), narrow(wide.size() * 4, device),
      numbers(count * 5 * sizeof(std::int64_t), device);
  const Tensor from = memory.tensor(DType::kF32, {batch, classes});
  const Tensor there = narrow.tensor(dtype, {batch, classes});
  copy(from, tensor_of(std::span(wide), {batch, classes}));
  ops.run(ops::Cast{.from = from, .to = there});
  const auto place = [&](int which, DType type) {
    return numbers.tensor(type, {batch}, static_cast<std::size_t>(which) * count * 8);
  };
  const Tensor tokens = place(0, DType::kI32), positions = place(1, DType::kI32),
               lengths = place(2, DType::kI32), seed = place(3, DType::kI64);
  copy(positions, tensor_of(std::span(drawn.positions)));
  copy(lengths, tensor_of(std::span(drawn.lengths)));
  copy(seed, tensor_of(std::span(seeds)));
  ops.run(ops::Sample{.logits = there,
                      .choices = choices,
                      .temperature = options.temperature,
                      .top_k = options.top_k,
                      .top_p = options.top_p,
                      .seeds = seed,
                      .positions = positions,
                      .lengths = lengths,
                      .last_length = kLastLength,
                      .tokens = tokens});
  ops.synchronize();
  copy(tensor_of(std::span(drawn.tokens)), tokens);
  copy(tensor_of(std::span(drawn.positions)), positions);
  copy(tensor_of(std::span(drawn.lengths)), lengths);
  return drawn;
}

// Peaked, flat, with many ties, or with tokens that never come.
std::vector<float> made_up_logits(std::int64_t batch, std::int64_t classes, int kind) {
  std::vector<float> logits(static_cast<std::size_t>(batch * classes));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto normal = normal_at(11, static_cast<std::uint64_t>(kind), i);
    logits[i] = kind == 0   ? 4 * normal
                : kind == 1 ? 0.1f * normal
                : kind == 2 ? static_cast<float>(static_cast<int>(2 * normal))
                            : (i % 3 == 0 ? -std::numeric_limits<float>::infinity() : normal);
  }
  return logits;
}

TEST_F(CudaSample, ChoosesWhatTheCpuChooses) {
  const auto cpu = make_cpu_ops(1);
  const ops::ChoiceOptions all[] = {{.temperature = 0},
                                    {.temperature = 1},
                                    {.temperature = 0.3},
                                    {.temperature = 5},
                                    {.temperature = 0.8, .top_k = 1},
                                    {.temperature = 0.8, .top_k = 50},
                                    {.temperature = 2, .top_k = 3000},
                                    {.temperature = 1, .top_k = 7, .top_p = 0.6},
                                    {.temperature = 1, .top_p = 0.9},
                                    {.temperature = 3, .top_p = 0.99},
                                    {.temperature = 1, .top_p = 1e-6}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::int64_t classes : {1, 37, 1024, 5003, 50257}) {
      const std::int64_t batch = classes > 10000 ? 9 : 40;
      for (int kind = 0; kind < 4; ++kind) {
        if (classes == 1 && kind == 3) continue;  // nothing could be chosen
        const auto logits = made_up_logits(batch, classes, kind);
        const std::int64_t choices = classes > 100 ? classes - 5 : classes;
        for (const ops::ChoiceOptions& options : all) {
          const Drawn right = draw(*cpu, logits, batch, choices, options, dtype);
          const Drawn got = draw(gpu_ops(), logits, batch, choices, options, dtype);
          const std::string of = fmt::format(
              "{} of {} classes, kind {}, temperature {}, top k {}, top p {}", name(dtype), classes,
              kind, options.temperature, options.top_k, options.top_p);
          ASSERT_EQ(got.tokens, right.tokens) << of;
          ASSERT_EQ(got.positions, right.positions) << of;
          ASSERT_EQ(got.lengths, right.lengths) << of;
        }
      }
    }
  }
}

TEST_F(CudaSample, FindsNoTokenWhereThereIsNone) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::int64_t kClasses = 5003;
  std::vector<float> logits(3 * kClasses, 1);
  logits[17] = std::numeric_limits<float>::quiet_NaN();
  logits[kClasses + 4999] = kInfinity;
  for (std::size_t i = 2 * kClasses; i < logits.size(); ++i) logits[i] = -kInfinity;
  for (const double temperature : {0.0, 1.0}) {
    const Drawn got =
        draw(gpu_ops(), logits, 3, kClasses, {.temperature = temperature}, DType::kF32);
    EXPECT_EQ(got.tokens, std::vector<std::int32_t>(3, ops::kNoToken));
  }
}

class CudaFewRows : public OnLiveGpu<::testing::Test> {};

TEST_F(CudaFewRows, ARowHasTheSameBitsWhateverRowsComeWithIt) {
  Ops& ops = gpu_ops();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& [in, out] :
         {std::pair<std::int64_t, std::int64_t>{768, 771}, {3072, 768}, {64, 9000}, {8192, 40}}) {
      EXPECT_EQ(ops.implementation({.rows = 8, .in = in, .out = out, .dtype = dtype},
                                   LinearPass::kForward),
                "few rows");
      const std::size_t weights = static_cast<std::size_t>(in * out);
      std::vector<float> values(weights + static_cast<std::size_t>(8 * in));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal_at(3, 0, i);
      const auto elements = static_cast<std::int64_t>(values.size());
      const Buffer wide(values.size() * 4, kGpu), narrow(values.size() * 4, kGpu),
          results(static_cast<std::size_t>(16 * out) * 4, kGpu);
      copy(wide.tensor(DType::kF32, {elements}), tensor_of(std::span(values)));
      ops.run(ops::Cast{.from = wide.tensor(DType::kF32, {elements}),
                        .to = narrow.tensor(dtype, {elements})});
      const Tensor weight = narrow.tensor(dtype, {out, in});
      const Tensor x = narrow.tensor(dtype, {8, in}, weights * size_of(dtype));
      const Tensor together = results.tensor(dtype, {8, out});
      const Tensor alone =
          results.tensor(dtype, {8, out}, static_cast<std::size_t>(8 * out) * size_of(dtype));
      ops.run(ops::Linear{.x = x, .weight = weight, .bias = {}, .residual = {}, .y = together});
      for (const auto& [first, count] :
           {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 2}, {3, 4}, {7, 1}}) {
        ops.run(ops::Linear{.x = x.slice(first, count),
                            .weight = weight,
                            .bias = {},
                            .residual = {},
                            .y = alone.slice(first, count)});
      }
      ops.synchronize();
      const HostView a(together), b(alone);
      EXPECT_EQ(std::memcmp(a.tensor().data(), b.tensor().data(), a.tensor().bytes()), 0)
          << name(dtype) << " " << in << " to " << out;
    }
  }
}

}  // namespace
}  // namespace lockstep::ops_test
