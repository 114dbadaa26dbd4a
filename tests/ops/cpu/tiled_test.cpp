// Tiled matrix products: emulated tiles on any CPU, and its own where it has them.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "lockstep/base/system/cpu_features.h"
#include "lockstep/ops/cpu/gemm/packed.h"
#include "lockstep/ops/cpu/gemm/tiles/tiled.h"
#include "lockstep/ops/cpu/team/supply.h"
#include "tests/ops/cpu/products.h"

namespace lockstep::cpu::gemm {
namespace {

// Tiles, and the instruction set that finishes their squares.
struct TileCase {
  const TileKernels* kernels;
  Isa isa;
};

std::vector<TileCase> tile_cases() {
  std::vector<TileCase> cases{{&kEmulatedTiles, Isa::kScalar}};
#if defined(__x86_64__)
  if (cpu_features().amx_bf16) cases.push_back({&kAmxTiles, Isa::kAmx});
#endif
  return cases;
}

std::vector<std::byte> tiled(const TileCase& tiles, ThreadTeam& team, const TiledBlocks& blocks,
                             const ProductShape& shape, const ProductInputs& inputs,
                             std::optional<ops::Activation> activation = std::nullopt) {
  const Cpu cpu{team, tiles.isa};
  return output_of(
      shape, inputs, blocks.bytes(team.size()),
      [&](const Product& product, std::byte* scratch) {
        run_tiled(*tiles.kernels, cpu, blocks, product, scratch);
      },
      activation);
}

ProductShape bf16_shape(std::size_t m, std::size_t n, std::size_t k, int transposed) {
  return {.m = m,
          .n = n,
          .k = k,
          .dtype = DType::kBF16,
          .output = DType::kBF16,
          .a_transposed = (transposed & 1) != 0,
          .b_transposed = (transposed & 2) != 0};
}

void expect_exact_by_tiles(const TileCase& tiles, ThreadTeam& team, const TiledBlocks& blocks,
                           const ProductShape& shape) {
  const ProductInputs inputs = integer_inputs(shape);
  ASSERT_EQ(tiled(tiles, team, blocks, shape, inputs),
            elements_of(shape.output, exact(shape, inputs)))
      << name(tiles.isa) << ", " << team.size() << " threads: " << text(shape);
}

// Blocks so small that a product of a few strips has several of everything.
TiledBlocks small_blocks(bool rows_are_shared) {
  return {.rows_are_shared = rows_are_shared,
          .own_lines = 64,
          .group = 64,
          .panel = 96,
          .depth = 64,
          .waiting = 224};
}

TEST(TiledGemm, MultipliesOddShapesExactly) {
  constexpr std::size_t kSizes[] = {0, 1, 3, 17, 33, 65};
  ThreadTeam team(1);
  for (const TileCase& tiles : tile_cases()) {
    for (const int transposed : {0, 1, 2, 3}) {
      for (const std::size_t m : kSizes) {
        for (const std::size_t n : kSizes) {
          for (const std::size_t k : kSizes) {
            const ProductShape shape = bf16_shape(m, n, k, transposed);
            expect_exact_by_tiles(tiles, team, plan_tiled(shape), shape);
          }
        }
      }
    }
  }
}

TEST(TiledGemm, MultipliesWhatDoesNotFitIntoABlock) {
  for (const TileCase& tiles : tile_cases()) {
    for (const int threads : {1, 3}) {
      ThreadTeam team(threads);
      for (const int transposed : {0, 1, 2, 3}) {
        const ProductShape shape = bf16_shape(131, 197, 151, transposed);
        expect_exact_by_tiles(tiles, team, small_blocks(true), shape);
        expect_exact_by_tiles(tiles, team, small_blocks(false), shape);
      }
    }
  }
}

TEST(TiledGemm, MultipliesInTheBlocksThatItPlans) {
  constexpr std::size_t kDepths[] = {TiledBlocks::kWholeDepth, TiledBlocks::kWholeDepth + 1};
  for (const TileCase& tiles : tile_cases()) {
    for (const std::size_t depth : kDepths) {
      for (const int threads : {1, 3}) {
        ThreadTeam team(threads);
        const ProductShape shape = bf16_shape(40, 70, depth, 1);
        expect_exact_by_tiles(tiles, team, plan_tiled(shape), shape);
      }
    }
  }
}

TEST(TiledGemm, FinishesInOrderAndRoundsOnce) {
  ThreadTeam team(2);
  for (const TileCase& tiles : tile_cases()) {
    for (const DType output : {DType::kBF16, DType::kF32}) {
      for (int what = 0; what < 8; ++what) {
        ProductShape shape = bf16_shape(67, 101, 150, 2);
        shape.output = output;
        shape.bias = (what & 1) != 0;
        shape.added = (what & 2) != 0;
        shape.factor = (what & 4) != 0;
        expect_exact_by_tiles(tiles, team, plan_tiled(shape), shape);
        expect_exact_by_tiles(tiles, team, small_blocks(what % 2 == 0), shape);
      }
    }
  }
}

TEST(TiledGemm, ActivatesAsThePackedProductDoes) {
  using ops::Activation;
  ThreadTeam team(2);
  for (const TileCase& tiles : tile_cases()) {
    for (const Activation activation :
         {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu}) {
      ProductShape shape = bf16_shape(65, 99, 70, 2);
      shape.bias = true;
      ProductInputs inputs = integer_inputs(shape);
      for (double& element : inputs.a) element /= 8;
      const Cpu cpu{team, tiles.isa};
      const auto expected = output_of(
          shape, inputs, packed_scratch(cpu, shape),
          [&](const Product& product, std::byte* scratch) { run_packed(cpu, product, scratch); },
          activation);
      EXPECT_EQ(tiled(tiles, team, plan_tiled(shape), shape, inputs, activation), expected)
          << name(tiles.isa);
    }
  }
}

ProductInputs normal_inputs(const ProductShape& shape) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  ProductInputs inputs;
  for (std::size_t i = 0; i < shape.m * shape.k; ++i) inputs.a.push_back(normal(random));
  for (std::size_t i = 0; i < shape.k * shape.n; ++i) inputs.b.push_back(normal(random));
  inputs.added.resize(shape.m * shape.n);
  return inputs;
}

// And whatever multiplies them: emulated tiles sum up as those of the CPU do.
TEST(TiledGemm, GivesTheSameBitsHoweverItIsCut) {
  ProductShape shape = bf16_shape(101, 203, 500, 0);
  shape.output = DType::kF32;
  const ProductInputs inputs = normal_inputs(shape);
  ThreadTeam one(1);
  const auto expected = tiled(tile_cases().front(), one, plan_tiled(shape), shape, inputs);
  for (const TileCase& tiles : tile_cases()) {
    for (const int threads : {1, 2, 3, 8}) {
      ThreadTeam team(threads);
      EXPECT_EQ(tiled(tiles, team, plan_tiled(shape), shape, inputs), expected)
          << name(tiles.isa) << ", " << threads << " threads";
      EXPECT_EQ(tiled(tiles, team, small_blocks(threads % 2 == 0), shape, inputs), expected)
          << name(tiles.isa) << ", " << threads << " threads, small blocks";
    }
  }
}

TEST(TiledGemm, StaysInTheSecondCache) {
  constexpr std::size_t kCache = std::size_t{2} << 20;
  constexpr std::size_t kPanels = std::size_t{16} << 20;
  constexpr std::size_t kShapes[][3] = {{4096, 2304, 768}, {4096, 768, 3072}, {3072, 768, 4096},
                                        {512, 50257, 768}, {512, 768, 50257}, {50257, 768, 512},
                                        {4096, 4096, 1},   {1, 1, 1 << 20},   {8192, 28672, 8192}};
  for (const auto& [m, n, k] : kShapes) {
    const TiledBlocks blocks = plan_tiled(bf16_shape(m, n, k, 0));
    EXPECT_LT((blocks.own_lines + blocks.group) * blocks.depth * sizeof(BFloat16), kCache)
        << m << " x " << n << " x " << k;
    EXPECT_LE(blocks.bytes(4), kPanels + 4 * kCache) << m << " x " << n << " x " << k;
  }
}

// Every line goes to one thread, large pieces first.
TEST(Supply, GivesAwayEachLineOnce) {
  for (const std::size_t count : {0, 1, 31, 32, 1000}) {
    Supply supply({64, 64 + count}, 2, 32);
    std::size_t taken = 64;
    std::size_t former = 128;
    for (Range some = supply.take(128); some.size() > 0; some = supply.take(128)) {
      EXPECT_EQ(some.begin, taken);
      EXPECT_LE(some.size(), former);
      taken = some.end;
      former = some.size();
    }
    EXPECT_EQ(taken, 64 + count);
  }
}

}  // namespace
}  // namespace lockstep::cpu::gemm
