// Blocked attention on the CPU, against the reference.
#include "lockstep/ops/cpu/attention/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/ops/cpu/attention_cases.h"

namespace lockstep {
namespace {

using namespace attention_cases;

TEST(Attention, AgreesWithTheReferenceOnOddShapes) {
  const std::int64_t lengths[] = {1, 2, 3, 17, 63, 64, 65, 130};
  const std::int64_t head_sizes[] = {1, 3, 16, 17, 64, 80};
  for (const Isa isa : available_isas()) {
    std::size_t turn = 0;
    for (const std::int64_t queries : lengths) {
      for (const std::int64_t keys : lengths) {
        for (const bool causal : {false, true}) {
          const std::int64_t head_size = head_sizes[turn % std::size(head_sizes)];
          const Mask mask = turn % 5 == 0 ? Mask::kSome : Mask::kNone;
          expect_agreement(
              {.shape = shape_of(1, queries, keys, 1, 1, head_size, causal), .mask = mask}, isa);
          ++turn;
        }
      }
    }
  }
}

TEST(Attention, AgreesOnEveryHeadSizeInEveryType) {
  for (const Isa isa : available_isas()) {
    for (const DType dtype : kAttentionTypes) {
      for (const std::int64_t head_size : {1, 3, 16, 17, 64, 80}) {
        expect_agreement({.shape = shape_of(1, 65, 70, 2, 2, head_size, true, dtype)}, isa);
      }
    }
  }
}

AttentionShape windowed(AttentionShape shape, std::int64_t window) {
  shape.causal = true;
  shape.window = window;
  return shape;
}

// Windows that end within a tile, at its edge and beyond it, of sequences of some tiles.
TEST(Attention, SeesNothingOutsideOfAWindow) {
  const std::int64_t lengths[] = {1, 17, 64, 65, 200};
  for (const Isa isa : available_isas()) {
    std::size_t turn = 0;
    for (const std::int64_t queries : lengths) {
      for (const std::int64_t keys : lengths) {
        for (const std::int64_t window : {1, 5, 63, 64, 65, 128, 300}) {
          const DType dtype = kAttentionTypes[turn % std::size(kAttentionTypes)];
          expect_agreement(
              {.shape = windowed(shape_of(1, queries, keys, 2, 1, 16, true, dtype), window),
               .mask = turn % 5 == 0 ? Mask::kSome : Mask::kNone,
               .dropout = turn % 7 == 0 ? 0.2 : 0},
              isa);
          ++turn;
        }
      }
    }
  }
  for (const std::int64_t window : {1, 40, 64, 100}) {
    expect_agreement(
        {.shape = windowed(shape_of(2, 150, 170, 2, 2, 32, true, DType::kBF16), window)},
        Computer::emulated_tiles());
  }
}

// Caps far below the scores, among them and far above.
TEST(Attention, CapsScoresSoftly) {
  for (const float softcap : {0.25f, 1.5f, 50.0f}) {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : kAttentionTypes) {
        for (const bool causal : {false, true}) {
          expect_agreement({.shape = shape_of(1, 67, 130, 4, 2, 17, causal, dtype),
                            .mask = causal ? Mask::kSome : Mask::kNone,
                            .dropout = causal ? 0 : 0.2,
                            .softcap = softcap},
                           isa);
        }
        expect_agreement({.shape = windowed(shape_of(2, 150, 150, 2, 1, 64, true, dtype), 70),
                          .mask = Mask::kAllOfOneSequence,
                          .softcap = softcap},
                         isa);
        expect_agreement({.shape = shape_of(1, 200, 5, 1, 1, 16, true, dtype), .softcap = softcap},
                         isa);
      }
      expect_agreement(
          {.shape = shape_of(1, 70, 70, 2, 1, 16, true), .sign = -1, .softcap = softcap}, isa);
    }
  }
}

// Scores up to 1e4 are all at the cap or below, and their gradients vanish.
TEST(Attention, CapsLargeScores) {
  for (const Isa isa : available_isas()) {
    const Case c{.shape = shape_of(1, 130, 130, 1, 1, 64, true), .size = 50, .softcap = 30};
    const Inputs in(c);
    const Results expected = reference(c, in);
    const Results results = blocked(c, in, isa, 2, &expected);
    EXPECT_LE(distance(results.log_sum, expected.log_sum), 4e-6);
    EXPECT_LE(distance(results.out, expected.out), 4e-4);
    EXPECT_LE(distance(results.dkeys_values, expected.dkeys_values), 4e-4);
    for (std::size_t i = 0; i < results.log_sum.tensor.elements(); ++i) {
      EXPECT_LE(element(results.log_sum, i), 30 + std::log(130.0f)) << i;
    }
  }
}

AttentionShape biased(AttentionShape shape, std::int64_t distances) {
  shape.distances = distances;
  return shape;
}

// Distances that end within a tile, among tiles and beyond all keys.
TEST(Attention, AddsABiasByDistance) {
  const std::int64_t lengths[] = {1, 2, 17, 64, 65, 200};
  for (const Isa isa : available_isas()) {
    std::size_t turn = 0;
    for (const std::int64_t queries : lengths) {
      for (const std::int64_t keys : lengths) {
        for (const std::int64_t distances : {1, 3, 21, 127, 129, 501}) {
          const bool causal = turn % 2 == 0;
          const DType dtype = kAttentionTypes[turn % std::size(kAttentionTypes)];
          expect_agreement(
              {.shape = biased(shape_of(2, queries, keys, 2, 1, 16, causal, dtype), distances),
               .mask = turn % 5 == 0 ? Mask::kSome : Mask::kNone,
               .dropout = turn % 7 == 0 ? 0.2 : 0,
               .sign = turn % 3 == 0 ? -1.0f : 1.0f},
              isa);
          ++turn;
        }
      }
    }
    expect_agreement({.shape = biased(windowed(shape_of(2, 150, 170, 2, 2, 32), 70), 91)}, isa);
    expect_agreement({.shape = biased(shape_of(1, 1, 150, 3, 1, 32, true), 91)}, isa);
  }
}

TEST(AttentionInTiles, AddsABiasByDistance) {
  for (const std::int64_t distances : {1, 21, 127, 501}) {
    for (const bool causal : {false, true}) {
      expect_agreement(
          {.shape = biased(shape_of(2, 150, 170, 4, 2, 32, causal, DType::kBF16), distances),
           .mask = causal ? Mask::kSome : Mask::kNone,
           .dropout = causal ? 0 : 0.2},
          Computer::emulated_tiles());
    }
  }
}

TEST(Attention, KeysOutsideOfAWindowMayHoldAnything) {
  const Case c{.shape = windowed(shape_of(1, 2, 150, 1, 1, 16), 20)};
  const Inputs in(c), spoilt(c);
  const auto width = static_cast<std::size_t>(in.key_shape[1]);
  for (std::size_t i = 0; i < 64 * width; ++i) {  // whole blocks, which are never read
    set(spoilt.keys_values, i, std::numeric_limits<float>::quiet_NaN());
  }
  for (const Isa isa : available_isas()) {
    EXPECT_TRUE(same_bits(blocked(c, spoilt, isa, 2, nullptr).dqueries,
                          blocked(c, in, isa, 2, nullptr).dqueries));
  }
}

TEST(Attention, SumsGradientsOfKeysOverTheHeadsThatShareThem) {
  for (const Isa isa : available_isas()) {
    for (const DType dtype : kAttentionTypes) {
      expect_agreement({.shape = shape_of(2, 67, 67, 6, 2, 16, true, dtype)}, isa);
      expect_agreement({.shape = shape_of(1, 5, 66, 4, 1, 8, false, dtype)}, isa);
    }
  }
}

TEST(Attention, HidesPaddingAndGivesZeroWhereNothingIsSeen) {
  for (const Isa isa : available_isas()) {
    for (const DType dtype : kAttentionTypes) {
      for (const bool causal : {false, true}) {
        for (const Mask mask : {Mask::kSome, Mask::kAllOfOneSequence}) {
          expect_agreement({.shape = shape_of(2, 66, 130, 2, 1, 16, causal, dtype), .mask = mask},
                           isa);
        }
      }
    }
    // Without keys, or where causal queries come before all of them.
    expect_agreement({.shape = shape_of(2, 3, 0, 2, 1, 16)}, isa);
    expect_agreement({.shape = shape_of(1, 200, 5, 1, 1, 16, true)}, isa);
    expect_agreement({.shape = shape_of(2, 0, 3, 2, 1, 16)}, isa);
    expect_agreement({.shape = shape_of(0, 3, 3, 2, 1, 16)}, isa);
  }
}

TEST(Attention, AQueryWithoutKeysHasNoLogSum) {
  const Case c{.shape = shape_of(1, 4, 2, 1, 1, 8, true)};
  const Inputs in(c);
  const Results results = blocked(c, in, chosen_isa(), 1, nullptr);
  EXPECT_EQ(element(results.log_sum, 0), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(element(results.log_sum, 1), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(element(results.log_sum, 2)));
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(element(results.out, i), 0) << i;
}

void spoil_padding(const Inputs& in) {
  const std::size_t width = static_cast<std::size_t>(in.key_shape[1]);
  for (std::size_t j = 0; j < static_cast<std::size_t>(in.key_shape[0]); ++j) {
    if (in.mask.tensor.as<std::uint8_t>()[j] != 0) continue;
    for (std::size_t i = 0; i < width; ++i) {
      set(in.keys_values, j * width + i, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

TEST(Attention, PaddingMayHoldAnything) {
  Case c{.shape = shape_of(1, 70, 70, 1, 1, 16), .mask = Mask::kSome};
  const Inputs in(c), spoilt(c);
  spoil_padding(spoilt);
  for (const Isa isa : available_isas()) {
    const Results clean = blocked(c, in, isa, 2, nullptr);
    const Results results = blocked(c, spoilt, isa, 2, nullptr);
    EXPECT_TRUE(same_bits(results.out, clean.out));
    EXPECT_TRUE(same_bits(results.dqueries, clean.dqueries));
    EXPECT_TRUE(same_bits(results.dkeys_values, clean.dkeys_values));
  }
}

TEST(Attention, DropsWhatTheReferenceDrops) {
  for (const Isa isa : available_isas()) {
    for (const DType dtype : kAttentionTypes) {
      for (const std::int64_t keys : {68, 67, 66, 65, 2}) {
        expect_agreement(
            {.shape = shape_of(2, 66, keys, 2, 2, 16, keys == 66, dtype), .dropout = 0.3}, isa);
      }
    }
    expect_agreement({.shape = shape_of(1, 20, 20, 2, 1, 8), .mask = Mask::kSome, .dropout = 0.9},
                     isa);
    expect_agreement({.shape = shape_of(1, 20, 20, 1, 1, 8), .dropout = 1e-17}, isa);
  }
}

TEST(Attention, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Case cases[] = {
      {.shape = shape_of(1, 300, 300, 1, 1, 17, true), .dropout = 0.1},
      {.shape = shape_of(1, 700, 200, 1, 1, 8)},
      {.shape = shape_of(3, 130, 140, 4, 2, 16, true, DType::kBF16), .mask = Mask::kSome},
      {.shape = shape_of(1, 70, 600, 3, 1, 16, true, DType::kF16)},
      {.shape = biased(shape_of(1, 300, 300, 1, 1, 17), 99)},
      {.shape = biased(shape_of(3, 130, 140, 4, 2, 16, true, DType::kBF16), 61), .dropout = 0.1},
  };
  for (const Isa isa : available_isas()) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.text());
      const Inputs in(c);
      const Results one = blocked(c, in, isa, 1, nullptr);
      for (const int threads : {2, 3, 7}) {
        SCOPED_TRACE(threads);
        const Results many = blocked(c, in, isa, threads, nullptr);
        EXPECT_TRUE(same_bits(many.out, one.out));
        EXPECT_TRUE(same_bits(many.log_sum, one.log_sum));
        EXPECT_TRUE(same_bits(many.probabilities, one.probabilities));
        EXPECT_TRUE(same_bits(many.dqueries, one.dqueries));
        EXPECT_TRUE(same_bits(many.dkeys_values, one.dkeys_values));
        EXPECT_TRUE(same_bits(many.dbias, one.dbias));
      }
    }
  }
}

TEST(Attention, LargeScoresStayFinite) {
  for (const Isa isa : available_isas()) {
    for (const bool causal : {false, true}) {
      const Case c{.shape = shape_of(1, 130, 130, 1, 1, 64, causal), .size = 50};  // up to 1e4
      const Inputs in(c);
      const Results results = blocked(c, in, isa, 2, nullptr);
      const Results expected = reference(c, in);
      EXPECT_LE(distance(results.log_sum, expected.log_sum), 4e-6);
      EXPECT_LE(distance(results.out, expected.out), 4e-3);
      EXPECT_LE(distance(results.dkeys_values, expected.dkeys_values), 4e-3);
      EXPECT_LE(distance(results.dqueries, expected.dqueries), 2e-2);
    }
  }
}

std::vector<Computer> computers_with_tiles() {
  std::vector<Computer> computers{Computer::emulated_tiles()};
  if (available_isas().front() == Isa::kAmx) computers.emplace_back(Isa::kAmx);
  return computers;
}

TEST(AttentionInTiles, AgreesWithTheReference) {
  const auto shape = [](std::int64_t queries, std::int64_t keys, std::int64_t head_size,
                        bool causal) {
    return shape_of(1, queries, keys, 1, 1, head_size, causal, DType::kBF16);
  };
  for (const Computer& computer : computers_with_tiles()) {
    for (const std::int64_t queries : {1, 17, 64, 130}) {
      for (const std::int64_t keys : {1, 3, 65, 128, 199}) {
        for (const bool causal : {false, true}) {
          expect_agreement({.shape = shape(queries, keys, 32, causal)}, computer);
        }
      }
    }
    expect_agreement({.shape = shape(70, 100, 64, true), .sign = -1}, computer);
    expect_agreement({.shape = shape(70, 100, 96, true)}, computer, 3);
    expect_agreement({.shape = shape(67, 130, 32, true), .mask = Mask::kSome, .dropout = 0.3},
                     computer);
    // Threads share one head, and some of them see only blocks that are not full.
    expect_agreement({.shape = shape_of(1, 131, 131, 2, 1, 32, true, DType::kBF16), .dropout = 0.1},
                     computer, 3);
    expect_agreement({.shape = shape_of(2, 67, 67, 6, 2, 32, true, DType::kBF16),
                      .mask = Mask::kAllOfOneSequence},
                     computer);
    expect_agreement({.shape = shape(66, 67, 48, true)}, computer);  // is not done in tiles
    for (const float softcap : {0.25f, 1.5f, 50.0f}) {
      expect_agreement({.shape = shape(70, 130, 64, true), .softcap = softcap}, computer);
      expect_agreement({.shape = shape(67, 130, 32, true),
                        .mask = Mask::kSome,
                        .dropout = 0.3,
                        .sign = -1,
                        .softcap = softcap},
                       computer, 3);
    }
  }
}

TEST(AttentionInTiles, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Case c{.shape = biased(shape_of(1, 100, 140, 3, 1, 32, true, DType::kBF16), 61),
               .mask = Mask::kSome};
  const Inputs in(c);
  for (const Computer& computer : computers_with_tiles()) {
    const Results one = blocked(c, in, computer, 1, nullptr);
    for (const int threads : {2, 7}) {
      SCOPED_TRACE(threads);
      const Results many = blocked(c, in, computer, threads, nullptr);
      EXPECT_TRUE(same_bits(many.out, one.out));
      EXPECT_TRUE(same_bits(many.dqueries, one.dqueries));
      EXPECT_TRUE(same_bits(many.dkeys_values, one.dkeys_values));
      EXPECT_TRUE(same_bits(many.dbias, one.dbias));
    }
  }
}

TEST(AttentionInTiles, PaddingMayHoldAnything) {
  const Case c{.shape = shape_of(1, 70, 70, 1, 1, 32, false, DType::kBF16), .mask = Mask::kSome};
  const Inputs in(c), spoilt(c);
  spoil_padding(spoilt);
  for (const Computer& computer : computers_with_tiles()) {
    const Results clean = blocked(c, in, computer, 2, nullptr);
    const Results results = blocked(c, spoilt, computer, 2, nullptr);
    EXPECT_TRUE(same_bits(results.out, clean.out));
    EXPECT_TRUE(same_bits(results.dqueries, clean.dqueries));
    EXPECT_TRUE(same_bits(results.dkeys_values, clean.dkeys_values));
  }
}

TEST(Attention, ScratchGrowsAtMostLinearlyWithTheSequence) {
  for (const int threads : {1, 2, 8}) {
    ThreadTeam team(threads);
    const Cpu cpu{team, chosen_isa()};
    const auto bytes = [&](std::int64_t length, std::int64_t batch) {
      return cpu::attention_scratch(cpu, shape_of(batch, length, length, 12, 12, 64, true));
    };
    for (std::int64_t length = 1024; length < 8192; length *= 2) {
      EXPECT_LE(bytes(2 * length, 4), 2 * bytes(length, 4)) << length;
    }
    EXPECT_EQ(bytes(1024, 4), bytes(1024, 64));
    // Far below one matrix of scores.
    EXPECT_LT(bytes(8192, 4) / static_cast<std::size_t>(threads),
              std::size_t{8192} * 8192 * 4 / 32);
  }
}

TEST(Attention, IsCheckedBeforeAnythingIsWritten) {
  const Case c{.shape = shape_of(1, 4, 4, 2, 1, 8)};
  const Inputs in(c);
  const Results results(c, in);
  ThreadTeam team(1);
  const Cpu cpu{team, chosen_isa()};
  ops::Attention forward = forward_of(c, in, results);
  forward.shape.kv_heads = 2;
  EXPECT_THROW(cpu::run(cpu, forward, nullptr), Error);
  ops::AttentionBackward backward = backward_of(c, in, results);
  backward.dk.first = backward.dv.first;
  EXPECT_THROW(cpu::run(cpu, backward, nullptr), Error);
  EXPECT_EQ(element(results.out, 0), kUntouched);
  EXPECT_EQ(element(results.dqueries, 0), kUntouched);
}

TEST(Attention, RunsThroughOps) {
  const Case c{.shape = shape_of(1, 20, 20, 2, 2, 16, true)};
  const Inputs in(c);
  const Results expected = reference(c, in), results(c, in);
  const auto ops = make_cpu_ops(2);
  EXPECT_THROW(ops->run(forward_of(c, in, results)), Error) << "no scratch memory yet";
  const Buffer scratch(ops->scratch(c.shape));
  ops->use_scratch(scratch.tensor(DType::kU8, {static_cast<std::int64_t>(scratch.bytes())}));
  ops->run(forward_of(c, in, results));
  ops->run(backward_of(c, in, results));
  ops->synchronize();
  EXPECT_LE(distance(results.out, expected.out), 4e-6);
  EXPECT_LE(distance(results.dqueries, expected.dqueries), 4e-6);
}

}  // namespace
}  // namespace lockstep
