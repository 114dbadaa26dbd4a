// What the operations promise beyond values: bits that depend neither on the number of threads nor
// on where a shard is cut, and overflow that shows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Tensors of normal numbers, in memory of their own.
class Memory {
 public:
  Tensor normals(const Shape& shape, DType dtype = kF32) {
    const Tensor values = zeros(shape);
    std::uint64_t position = 0;
    for (float& x : values.as<float>()) x = normal_at(++seed_, 0, position++);
    if (dtype == kF32) return values;
    buffers_.emplace_back(Tensor::bytes_of(dtype, shape));
    const Tensor narrow = buffers_.back().tensor(dtype, shape);
    make_reference_ops()->run(ops::Cast{.from = values, .to = narrow});
    return narrow;
  }
  Tensor zeros(const Shape& shape, DType dtype = kF32) {
    buffers_.emplace_back(Tensor::bytes_of(dtype, shape));
    const Tensor tensor = buffers_.back().tensor(dtype, shape);
    fill_zero(tensor);
    return tensor;
  }
  Tensor indices(std::int64_t count, std::int32_t limit) {
    const Tensor tensor = zeros({count}, DType::kI32);
    std::uint64_t position = 0;
    for (std::int32_t& x : tensor.as<std::int32_t>()) {
      x = static_cast<std::int32_t>(random_word(++seed_, 0, position++) %
                                    static_cast<std::uint32_t>(limit));
    }
    return tensor;
  }

 private:
  std::vector<Buffer> buffers_;
  std::uint64_t seed_ = 0;
};

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.data(), tensor.data() + tensor.bytes()};
}

// Runs an operation on the same inputs with several numbers of threads; `run` returns what it
// wrote.
using Run = std::function<std::vector<Tensor>(Ops&, Memory&)>;

void expect_same_bits(const Run& run) {
  std::vector<std::vector<std::byte>> expected;
  for (const int threads : {1, 2, 3, 7}) {
    Memory memory;
    const auto ops = make_cpu_ops(threads);
    const std::vector<Tensor> results = run(*ops, memory);
    std::vector<std::vector<std::byte>> bits;
    for (const Tensor& result : results) bits.push_back(bytes_of(result));
    if (expected.empty()) expected = bits;
    EXPECT_TRUE(bits == expected) << ops->name();
  }
}

TEST(Threads, DoNotChangeTheGradientsOfANorm) {
  for (const DType dtype : {kF32, DType::kBF16}) {
    expect_same_bits([&](Ops& ops, Memory& memory) {
      const Shape shape{317, 97};
      const Tensor sum = memory.normals(shape, dtype), gain = memory.normals({97}, dtype),
                   y = memory.zeros(shape, dtype), mean = memory.zeros({317}),
                   rstd = memory.zeros({317}), dy = memory.normals(shape, dtype),
                   dsum = memory.zeros(shape, dtype), dgain = memory.normals({97}, dtype),
                   dbias = memory.normals({97});
      ops.run(ops::Norm{.x = sum, .gain = gain, .y = y, .mean = mean, .rstd = rstd});
      const auto scratch = static_cast<std::int64_t>(ops.norm_scratch(317, 97));
      ops.use_scratch(memory.zeros({scratch}, DType::kU8));
      ops.run(ops::NormBackward{.dy = dy,
                                .sum = sum,
                                .gain = gain,
                                .mean = mean,
                                .rstd = rstd,
                                .dsum = dsum,
                                .dgain = dgain,
                                .dbias = dbias});
      return std::vector{y, mean, rstd, dsum, dgain, dbias};
    });
  }
}

TEST(Threads, DoNotChangeTheGradientsOfAnEmbedding) {
  expect_same_bits([](Ops& ops, Memory& memory) {
    const Tensor tokens = memory.indices(300, 11), types = memory.indices(300, 2),
                 dy = memory.normals({300, 201}, DType::kBF16),
                 dtokens = memory.normals({11, 201}, DType::kBF16),
                 dpositions = memory.normals({60, 201}), dtypes = memory.normals({2, 201});
    ops.run(ops::EmbeddingBackward{.tokens = tokens,
                                   .types = types,
                                   .sequence = 60,
                                   .dy = dy,
                                   .dropout = {.probability = 0.2, .seed = 5},
                                   .dtokens_table = dtokens,
                                   .dpositions_table = dpositions,
                                   .dtypes_table = dtypes});
    return std::vector{dy, dtokens, dpositions, dtypes};
  });
}

TEST(Threads, DoNotChangeASumOfSquares) {
  expect_same_bits([](Ops& ops, Memory& memory) {
    const Tensor x = memory.normals({1'300'007}), result = memory.zeros({1}, DType::kF64);
    ops.run(ops::SumOfSquares{.x = x, .result = result});
    return std::vector{result};
  });
}

TEST(Threads, DoNotChangeRotaryNorDropoutNorLosses) {
  expect_same_bits([](Ops& ops, Memory& memory) {
    const Tensor x = memory.normals({210, 96}), logits = memory.normals({33, 517}),
                 targets = memory.indices(33, 517), losses = memory.zeros({33});
    ops.run(ops::Rotary{.x = {x, 0}, .heads = 2, .head_size = 48, .sequence = 70});
    ops.run(ops::Drop{.dropout = {.probability = 0.3, .seed = 9}, .x = x, .y = x});
    ops.run(ops::CrossEntropy{.logits = logits, .targets = targets, .losses = losses});
    return std::vector{x, logits, losses};
  });
}

// Shards of an optimizer's state end anywhere.
TEST(Adam, GivesAnElementTheSameBitsInEveryShard) {
  constexpr std::int64_t kCount = 1031;
  const auto ops = make_cpu_ops(2);
  const auto run = [&](Memory& memory, const std::vector<std::int64_t>& cuts) {
    const Tensor master = memory.normals({kCount}), gradient = memory.normals({kCount}),
                 first_moment = memory.normals({kCount}), second_moment = memory.zeros({kCount}),
                 parameter = memory.zeros({kCount}, DType::kBF16);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto part = [&](const Tensor& of) { return of.slice(cuts[i], cuts[i + 1] - cuts[i]); };
      ops->run(ops::Adam{.master = part(master),
                         .gradient = part(gradient),
                         .first_moment = part(first_moment),
                         .second_moment = part(second_moment),
                         .parameter = part(parameter),
                         .decay = 0.1,
                         .step = 3,
                         .gradient_scale = 0.7});
    }
    return std::vector{bytes_of(master), bytes_of(first_moment), bytes_of(second_moment),
                       bytes_of(parameter)};
  };
  Memory whole, cut;
  EXPECT_TRUE(run(whole, {0, kCount}) == run(cut, {0, 1, 4, 9, 20, 37, 514, 1030, kCount}));
}

TEST(SumOfSquares, HasSquaresThatNoFloatHas) {
  Memory memory;
  const Tensor x = memory.zeros({6}), result = memory.zeros({1}, DType::kF64);
  const auto sum_of = [&](float value) {
    for (float& each : x.as<float>()) each = value;
    make_cpu_ops(2)->run(ops::SumOfSquares{.x = x, .result = result});
    return result.as<double>()[0];
  };
  EXPECT_NEAR(sum_of(1e30f), 6e60, 1e54);
  EXPECT_NEAR(sum_of(1e-30f), 6e-60, 1e-66);
  EXPECT_EQ(sum_of(-kInfinity), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(sum_of(std::nanf(""))));
}

TEST(CrossEntropy, AnOverflowedLogitShowsInLossAndGradient) {
  for (const DType dtype : {kF32, DType::kBF16, DType::kF16}) {
    for (const float bad : {kInfinity, std::nanf("")}) {
      Memory memory;
      const Tensor wide = memory.normals({1, 37}), targets = memory.indices(1, 37),
                   losses = memory.zeros({1}), logits = memory.zeros({1, 37}, dtype);
      wide.as<float>()[21] = bad;
      const auto ops = make_cpu_ops(1);
      ops->run(ops::Cast{.from = wide, .to = logits});
      ops->run(ops::CrossEntropy{.logits = logits, .targets = targets, .losses = losses});
      ops->run(ops::Cast{.from = logits, .to = wide});
      EXPECT_FALSE(std::isfinite(losses.as<float>()[0]));
      for (const float gradient : wide.as<float>()) EXPECT_TRUE(std::isnan(gradient));
    }
  }
}

TEST(Drop, CountsBeyond32Bits) {
  // Blocks of four elements are counted, and 2^32 of them end at position 2^34.
  constexpr std::int64_t kCount = 500;
  const ops::Dropout dropout{.probability = 0.5,
                             .seed = 77,
                             .step = std::uint64_t{3} << 33,
                             .first = (std::uint64_t{1} << 34) - 240};
  Memory memory;
  const Tensor x = memory.normals({kCount}), y = memory.zeros({kCount});
  make_cpu_ops(1)->run(ops::Drop{.dropout = dropout, .x = x, .y = y});
  for (std::size_t i = 0; i < kCount; ++i) {
    const bool kept = is_kept(dropout.seed, dropout.step, dropout.first + i, 0.5);
    ASSERT_EQ(y.as<float>()[i], kept ? x.as<float>()[i] * 2 : 0) << i;
  }
}

}  // namespace
}  // namespace lockstep
