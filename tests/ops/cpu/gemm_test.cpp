// Packed matrix products: every instruction set of this CPU, every type, odd shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "lockstep/ops/cpu/gemm/blocks.h"
#include "lockstep/ops/cpu/gemm/packed.h"
#include "tests/ops/cpu/products.h"

namespace lockstep::cpu::gemm {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

std::vector<std::byte> packed(const Cpu& cpu, const ProductShape& shape,
                              const ProductInputs& inputs) {
  return output_of(
      shape, inputs, packed_scratch(cpu, shape),
      [&](const Product& product, std::byte* scratch) { run_packed(cpu, product, scratch); });
}

void expect_exact(const Cpu& cpu, const ProductShape& shape) {
  const ProductInputs inputs = integer_inputs(shape);
  ASSERT_EQ(packed(cpu, shape, inputs), elements_of(shape.output, exact(shape, inputs)))
      << name(cpu.isa) << ", " << cpu.team.size() << " threads: " << text(shape);
}

TEST(Gemm, MultipliesOddShapesExactly) {
  constexpr std::size_t kSizes[] = {0, 1, 3, 8, 13, 17, 33};
  for (const Isa isa : available_isas()) {
    ThreadTeam team(1);
    for (const DType dtype : kTypes) {
      for (const int transposed : {0, 1, 2, 3}) {
        for (const std::size_t m : kSizes) {
          for (const std::size_t n : kSizes) {
            for (const std::size_t k : kSizes) {
              expect_exact({team, isa}, {.m = m,
                                         .n = n,
                                         .k = k,
                                         .dtype = dtype,
                                         .output = dtype,
                                         .a_transposed = (transposed & 1) != 0,
                                         .b_transposed = (transposed & 2) != 0});
            }
          }
        }
      }
    }
  }
}

// Several blocks of depth, groups, takings of own lines and stages, and threads that get nothing.
TEST(Gemm, MultipliesWhatDoesNotFitIntoABlock) {
  constexpr std::size_t kBeyondAStage = Blocks::kMostStage * Blocks::kMostDepth + 1;
  constexpr ProductShape kShapes[] = {{.m = 129, .n = 64, .k = Blocks::kMostDepth + 1},
                                      {.m = 7, .n = 2 * Blocks::kMostLines + 5, .k = 1100},
                                      {.m = Blocks::kMostLines + 2, .n = 12, .k = 600},
                                      {.m = 2, .n = Blocks::kMostLines + 13, .k = 64},
                                      {.m = 1, .n = 1, .k = 3000},
                                      {.m = 30, .n = 70, .k = kBeyondAStage},
                                      {.m = 70, .n = 30, .k = kBeyondAStage}};
  for (const Isa isa : available_isas()) {
    for (const int threads : {1, 2, 3}) {
      ThreadTeam team(threads);
      for (ProductShape shape : kShapes) {
        for (const DType dtype : kTypes) {
          shape.dtype = shape.output = dtype;
          shape.b_transposed = true;
          expect_exact({team, isa}, shape);
        }
        shape.a_transposed = true;
        shape.b_transposed = false;
        expect_exact({team, isa}, shape);
      }
    }
  }
}

TEST(Gemm, FinishesInOrderAndRoundsOnce) {
  for (const Isa isa : available_isas()) {
    ThreadTeam team(2);
    for (const DType dtype : kTypes) {
      for (const DType output : {dtype, DType::kF32}) {
        for (const std::size_t k : {std::size_t{5}, std::size_t{1030}}) {
          for (int what = 0; what < 8; ++what) {
            expect_exact({team, isa}, {.m = 19,
                                       .n = 37,
                                       .k = k,
                                       .dtype = dtype,
                                       .output = output,
                                       .bias = (what & 1) != 0,
                                       .added = (what & 2) != 0,
                                       .factor = (what & 4) != 0});
          }
        }
      }
    }
  }
}

// As products are cut that are larger than a test can be: a strip at a time, panel after panel.
TEST(Gemm, GivesTheSameBitsHoweverItIsCut) {
  for (const Isa isa : available_isas()) {
    const Kernels& kernels = product_kernels(isa);
    for (const int threads : {1, 3}) {
      ThreadTeam team(threads);
      const Cpu cpu{team, isa};
      for (const bool rows_are_shared : {false, true}) {
        for (const std::size_t k : {std::size_t{100}, std::size_t{1030}, std::size_t{4100}}) {
          const ProductShape shape{.m = rows_are_shared ? 45u : 101u,
                                   .n = rows_are_shared ? 203u : 97u,
                                   .k = k,
                                   .added = true};
          const ProductInputs inputs = integer_inputs(shape);
          Blocks blocks = plan_blocks(kernels, shape);
          ASSERT_EQ(blocks.rows_are_shared, rows_are_shared);
          const std::size_t shared_width = rows_are_shared ? kernels.rows : kernels.columns;
          blocks.own_lines = rows_are_shared ? kernels.columns : kernels.rows;
          blocks.group = shared_width;
          blocks.panel = 2 * shared_width;
          EXPECT_EQ(output_of(shape, inputs, packed_scratch(blocks, threads),
                              [&](const Product& product, std::byte* scratch) {
                                run_packed(kernels, cpu, blocks, product, scratch);
                              }),
                    packed(cpu, shape, inputs))
              << name(isa) << ", " << threads << " threads: " << text(shape);
        }
      }
    }
  }
}

TEST(Gemm, GivesTheSameBitsWithAnyNumberOfThreads) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  ProductInputs inputs;
  const ProductShape shape{.m = 101, .n = 203, .k = 1200, .added = true};
  for (std::size_t i = 0; i < shape.m * shape.k; ++i) inputs.a.push_back(normal(random));
  for (std::size_t i = 0; i < shape.k * shape.n; ++i) inputs.b.push_back(normal(random));
  inputs.added.resize(shape.m * shape.n);
  for (const Isa isa : available_isas()) {
    ThreadTeam one(1);
    const auto expected = packed({one, isa}, shape, inputs);
    for (const int threads : {2, 3, 8}) {
      ThreadTeam team(threads);
      EXPECT_EQ(packed({team, isa}, shape, inputs), expected)
          << name(isa) << ", " << threads << " threads";
    }
  }
}

// Whole tiles of floats are finished in registers where nothing is activated, and in memory where
// something is: what ReLU lets through must be the same.
TEST(Gemm, FinishesInRegistersAndInMemoryWithTheSameBits) {
  std::mt19937 random(13);
  std::normal_distribution<double> normal;
  const auto fill = [&](std::size_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = static_cast<double>(static_cast<float>(normal(random)));
    return values;
  };
  for (int what = 0; what < 8; ++what) {
    const ProductShape shape{.m = 61,
                             .n = 101,
                             .k = 77,
                             .bias = (what & 1) != 0,
                             .added = (what & 2) != 0,
                             .factor = (what & 4) != 0};
    const ProductInputs inputs{.a = fill(shape.m * shape.k),
                               .b = fill(shape.k * shape.n),
                               .bias = fill(shape.n),
                               .added = fill(shape.m * shape.n),
                               .factor = fill(shape.m * shape.n)};
    ThreadTeam team(2);
    for (const Isa isa : available_isas()) {
      const Cpu cpu{team, isa};
      const auto plain = values_of(DType::kF32, packed(cpu, shape, inputs));
      const auto active =
          values_of(DType::kF32, output_of(
                                     shape, inputs, packed_scratch(cpu, shape),
                                     [&](const Product& product, std::byte* scratch) {
                                       run_packed(cpu, product, scratch);
                                     },
                                     ops::Activation::kRelu));
      for (std::size_t i = 0; i < plain.size(); ++i) {
        ASSERT_EQ(active[i], std::max(plain[i], 0.0)) << name(isa) << ", element " << i;
      }
    }
  }
}

// Sums over blocks of depth keep errors far below what one long sum could have.
TEST(Gemm, IsAsPreciseAsFloatsAllow) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  const ProductShape shape{.m = 9, .n = 14, .k = 5000, .b_transposed = true};
  ProductInputs inputs;
  for (std::size_t i = 0; i < shape.m * shape.k; ++i) {
    inputs.a.push_back(static_cast<float>(normal(random)));
  }
  for (std::size_t i = 0; i < shape.k * shape.n; ++i) {
    inputs.b.push_back(static_cast<float>(normal(random)));
  }
  inputs.added.resize(shape.m * shape.n);
  const auto expected = exact(shape, inputs);
  ThreadTeam team(1);
  for (const Isa isa : available_isas()) {
    const auto got = values_of(DType::kF32, packed({team, isa}, shape, inputs));
    const double scale = std::sqrt(static_cast<double>(shape.k));
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-6 * scale);
  }
}

}  // namespace
}  // namespace lockstep::cpu::gemm
