// Blocked attention on the CPU, against the reference.
#include "lockstep/ops/cpu/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/counter_rng.h"
#include "lockstep/base/error.h"
#include "lockstep/base/half.h"
#include "lockstep/ops/cpu/attention_kernels.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep {
namespace {

using cpu::Cpu;
using cpu::Isa;
using cpu::ThreadTeam;
using ops::AttentionShape;
using ops::Heads;

enum class Mask { kNone, kSome, kAllOfOneSequence };

struct Case {
  AttentionShape shape;
  Mask mask = Mask::kNone;
  double dropout = 0;
  float size = 1;  // of the elements of q and k
  float sign = 1;  // of the scale
  std::string text() const {
    return fmt::format("batch {} queries {} keys {} heads {}/{} of {} {} {} mask {} dropout {}",
                       shape.batch, shape.queries, shape.keys, shape.heads, shape.kv_heads,
                       shape.head_size, shape.causal ? "causal" : "", name(shape.dtype),
                       static_cast<int>(mask), dropout);
  }
};

AttentionShape shape_of(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                        std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size,
                        bool causal = false, DType dtype = DType::kF32) {
  return {batch, queries, keys, heads, kv_heads, head_size, causal, dtype};
}

float element(const Tensor& tensor, std::size_t i) {
  switch (tensor.dtype()) {
    case DType::kBF16:
      return to_float(tensor.as<BFloat16>()[i]);
    case DType::kF16:
      return to_float(tensor.as<Half>()[i]);
    default:
      return tensor.as<float>()[i];
  }
}

void set(const Tensor& tensor, std::size_t i, float x) {
  switch (tensor.dtype()) {
    case DType::kBF16:
      tensor.as<BFloat16>()[i] = to_bfloat16(x);
      return;
    case DType::kF16:
      tensor.as<Half>()[i] = to_half(x);
      return;
    default:
      tensor.as<float>()[i] = x;
  }
}

// A tensor that owns its elements.
struct Owned {
  Owned(DType dtype, const Shape& shape)
      : buffer(Tensor::bytes_of(dtype, shape)), tensor(buffer.tensor(dtype, shape)) {}
  operator const Tensor&() const { return tensor; }

  Buffer buffer;
  Tensor tensor;
};

Owned random_tensor(DType dtype, const Shape& shape, std::uint64_t seed, float size = 1) {
  Owned made(dtype, shape);
  for (std::size_t i = 0; i < made.tensor.elements(); ++i) {
    set(made, i, normal_at(seed, 0, i) * size);
  }
  return made;
}

constexpr float kUntouched = 77;

Owned untouched_tensor(DType dtype, const Shape& shape) {
  Owned made(dtype, shape);
  for (std::size_t i = 0; i < made.tensor.elements(); ++i) set(made, i, kUntouched);
  return made;
}

// Queries, keys and values with some columns of others before, between and behind them.
struct Inputs {
  static constexpr std::int64_t kBetween = 3;

  explicit Inputs(const Case& c)
      : query_columns(c.shape.heads * c.shape.head_size),
        key_columns(c.shape.kv_heads * c.shape.head_size),
        query_shape{c.shape.batch * c.shape.queries, query_columns + 2 * kBetween},
        key_shape{c.shape.batch * c.shape.keys, 2 * key_columns + 3 * kBetween},
        queries(random_tensor(c.shape.dtype, query_shape, 1, c.size)),
        keys_values(random_tensor(c.shape.dtype, key_shape, 2, c.size)),
        dout(random_tensor(c.shape.dtype, {c.shape.batch * c.shape.queries, query_columns}, 3)),
        mask(DType::kU8, {c.shape.batch, c.shape.keys}) {
    for (std::int64_t b = 0; b < c.shape.batch; ++b) {
      for (std::int64_t j = 0; j < c.shape.keys; ++j) {
        const auto at = static_cast<std::size_t>(b * c.shape.keys + j);
        const bool hidden = c.mask == Mask::kAllOfOneSequence ? b == 0 : (j * 7 + b) % 3 == 0;
        mask.tensor.as<std::uint8_t>()[at] = hidden ? 0 : 1;
      }
    }
  }

  Heads q() const { return {queries, kBetween}; }
  Heads k() const { return {keys_values, kBetween}; }
  Heads v() const { return {keys_values, 2 * kBetween + key_columns}; }
  Heads like_k(const Tensor& rows) const { return {rows, kBetween}; }
  Heads like_v(const Tensor& rows) const { return {rows, 2 * kBetween + key_columns}; }

  std::int64_t query_columns, key_columns;
  Shape query_shape, key_shape;
  Owned queries, keys_values, dout, mask;
};

// All that forward and backward give.
struct Results {
  Results(const Case& c, const Inputs& in)
      : out(untouched_tensor(c.shape.dtype, in.dout.tensor.shape())),
        log_sum(untouched_tensor(DType::kF32, {c.shape.batch, c.shape.heads, c.shape.queries})),
        probabilities(untouched_tensor(
            DType::kF32, {c.shape.batch, c.shape.heads, c.shape.queries, c.shape.keys})),
        dqueries(untouched_tensor(c.shape.dtype, in.query_shape)),
        dkeys_values(untouched_tensor(c.shape.dtype, in.key_shape)) {}

  Owned out, log_sum, probabilities, dqueries, dkeys_values;
};

ops::Dropout dropout_of(const Case& c) {
  return {.probability = c.dropout, .seed = 11, .step = 5, .first = (std::uint64_t{1} << 34) - 64};
}

ops::Attention forward_of(const Case& c, const Inputs& in, const Results& to) {
  return {.shape = c.shape,
          .scale = c.sign / std::sqrt(static_cast<float>(c.shape.head_size)),
          .q = in.q(),
          .k = in.k(),
          .v = in.v(),
          .key_mask = c.mask == Mask::kNone ? Tensor() : in.mask.tensor,
          .dropout = dropout_of(c),
          .out = to.out,
          .log_sum = to.log_sum,
          .probabilities = to.probabilities};
}

ops::AttentionBackward backward_of(const Case& c, const Inputs& in, const Results& to) {
  const ops::Attention forward = forward_of(c, in, to);
  return {.shape = c.shape,
          .scale = forward.scale,
          .q = forward.q,
          .k = forward.k,
          .v = forward.v,
          .key_mask = forward.key_mask,
          .dropout = forward.dropout,
          .out = to.out,
          .log_sum = to.log_sum,
          .dout = in.dout,
          .dq = {to.dqueries, Inputs::kBetween},
          .dk = in.like_k(to.dkeys_values),
          .dv = in.like_v(to.dkeys_values)};
}

Results reference(const Case& c, const Inputs& in) {
  Results results(c, in);
  const auto ops = make_reference_ops();
  ops->run(forward_of(c, in, results));
  ops->run(backward_of(c, in, results));
  return results;
}

// An instruction set, or other kernels than it has.
struct Computer {
  Computer(Isa the_isa) : isa(the_isa), text(name(the_isa)) {}
  static Computer emulated_tiles() {
    Computer computer(Isa::kScalar);
    computer.kernels = &cpu::kAttentionEmulated;
    computer.text = "emulated tiles";
    return computer;
  }
  Isa isa;
  std::string text;
  const cpu::AttentionKernels* kernels = nullptr;
};

// Backward takes the out and log_sum of `given`, so that it is compared on the same inputs. The
// scratch memory is as large as it was asked for, and begins at an odd address.
Results blocked(const Case& c, const Inputs& in, const Computer& computer, int threads,
                const Results* given) {
  Results results(c, in);
  ThreadTeam team(threads);
  const Cpu cpu{team, computer.isa};
  const auto run = [&](const auto& call, std::byte* memory) {
    if (computer.kernels == nullptr) return cpu::run(cpu, call, memory);
    cpu::run(cpu, *computer.kernels, call, memory);
  };
  const std::size_t bytes = cpu::attention_scratch(cpu, c.shape);
  const auto memory = std::make_unique<std::byte[]>(bytes + 1);
  std::byte* scratch = memory.get() + 1;
  std::memset(scratch, 0xff, bytes);  // NaNs
  run(forward_of(c, in, results), scratch);
  std::memset(scratch, 0xff, bytes);
  ops::AttentionBackward backward = backward_of(c, in, results);
  if (given != nullptr) {
    backward.out = given->out;
    backward.log_sum = given->log_sum;
  }
  run(backward, scratch);
  return results;
}

// How far two tensors are from each other, in parts of the largest element, or of 1, the size of
// what was summed up, where sums cancel.
double distance(const Tensor& actual, const Tensor& expected) {
  double largest = 1, most = 0;
  for (std::size_t i = 0; i < expected.elements(); ++i) {
    const double a = element(actual, i), e = element(expected, i);
    if (e != kUntouched && std::isfinite(e)) largest = std::max(largest, std::fabs(e));
    if (a == e) continue;  // infinities too
    const double apart = std::fabs(a - e);
    if (!(apart <= most))
      most = std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
  }
  return most / largest;
}

double tolerance(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-7;
  if (dtype == DType::kF16) return 0x1p-10;
  return 4e-6;
}

void expect_agreement(const Case& c, const Computer& computer, int threads = 2) {
  SCOPED_TRACE(c.text() + " on " + computer.text);
  const Inputs in(c);
  const Results expected = reference(c, in);
  const Results actual = blocked(c, in, computer, threads, &expected);
  const double limit = tolerance(c.shape.dtype);
  EXPECT_LE(distance(actual.out, expected.out), limit);
  EXPECT_LE(distance(actual.log_sum, expected.log_sum), 4e-6);
  EXPECT_LE(distance(actual.probabilities, expected.probabilities), 4e-6);
  EXPECT_LE(distance(actual.dqueries, expected.dqueries), limit);
  EXPECT_LE(distance(actual.dkeys_values, expected.dkeys_values), limit);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

constexpr DType kAttentionTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST(Attention, AgreesWithTheReferenceOnOddShapes) {
  const std::int64_t lengths[] = {1, 2, 3, 17, 63, 64, 65, 130};
  const std::int64_t head_sizes[] = {1, 3, 16, 17, 64, 80};
  for (const Isa isa : cpu::available_isas()) {
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
  for (const Isa isa : cpu::available_isas()) {
    for (const DType dtype : kAttentionTypes) {
      for (const std::int64_t head_size : {1, 3, 16, 17, 64, 80}) {
        expect_agreement({.shape = shape_of(1, 65, 70, 2, 2, head_size, true, dtype)}, isa);
      }
    }
  }
}

TEST(Attention, SumsGradientsOfKeysOverTheHeadsThatShareThem) {
  for (const Isa isa : cpu::available_isas()) {
    for (const DType dtype : kAttentionTypes) {
      expect_agreement({.shape = shape_of(2, 67, 67, 6, 2, 16, true, dtype)}, isa);
      expect_agreement({.shape = shape_of(1, 5, 66, 4, 1, 8, false, dtype)}, isa);
    }
  }
}

TEST(Attention, HidesPaddingAndGivesZeroWhereNothingIsSeen) {
  for (const Isa isa : cpu::available_isas()) {
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
  const Results results = blocked(c, in, cpu::chosen_isa(), 1, nullptr);
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
  for (const Isa isa : cpu::available_isas()) {
    const Results clean = blocked(c, in, isa, 2, nullptr);
    const Results results = blocked(c, spoilt, isa, 2, nullptr);
    EXPECT_TRUE(same_bits(results.out, clean.out));
    EXPECT_TRUE(same_bits(results.dqueries, clean.dqueries));
    EXPECT_TRUE(same_bits(results.dkeys_values, clean.dkeys_values));
  }
}

TEST(Attention, DropsWhatTheReferenceDrops) {
  for (const Isa isa : cpu::available_isas()) {
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
  };
  for (const Isa isa : cpu::available_isas()) {
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
      }
    }
  }
}

TEST(Attention, LargeScoresStayFinite) {
  for (const Isa isa : cpu::available_isas()) {
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
  if (cpu::available_isas().front() == Isa::kAmx) computers.emplace_back(Isa::kAmx);
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
  }
}

TEST(AttentionInTiles, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Case c{.shape = shape_of(3, 130, 140, 4, 2, 32, true, DType::kBF16), .mask = Mask::kSome};
  const Inputs in(c);
  for (const Computer& computer : computers_with_tiles()) {
    const Results one = blocked(c, in, computer, 1, nullptr);
    for (const int threads : {2, 3, 7}) {
      SCOPED_TRACE(threads);
      const Results many = blocked(c, in, computer, threads, nullptr);
      EXPECT_TRUE(same_bits(many.out, one.out));
      EXPECT_TRUE(same_bits(many.dqueries, one.dqueries));
      EXPECT_TRUE(same_bits(many.dkeys_values, one.dkeys_values));
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
    const Cpu cpu{team, cpu::chosen_isa()};
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
  const Cpu cpu{team, cpu::chosen_isa()};
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
