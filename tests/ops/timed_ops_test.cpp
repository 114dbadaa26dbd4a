#include "lockstep/ops/timed_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::UnorderedElementsAre;

struct Numbers {
  explicit Numbers(const Shape& of) : values(of.elements()), shape(of) {
    std::iota(values.begin(), values.end(), 1.0f);
  }
  Tensor tensor() {
    return Tensor(reinterpret_cast<std::byte*>(values.data()), DType::kF32, shape);
  }

  std::vector<float> values;
  Shape shape;
};

std::vector<std::string> names(const std::vector<OpTime>& times) {
  std::vector<std::string> result;
  for (const OpTime& one : times) result.push_back(one.operation);
  return result;
}

const OpTime& find(const std::vector<OpTime>& times, const std::string& operation) {
  for (const OpTime& one : times) {
    if (one.operation == operation) return one;
  }
  static const OpTime kNone;
  return kNone;
}

TEST(TimedOps, RunsWhatItIsGivenAndCountsFromStartToStop) {
  const auto reference = make_reference_ops();
  TimedOps timed(*reference);
  Numbers x({3, 5}), weight({7, 5}), y({3, 7}), expected({3, 7});
  const auto linear = [&](Numbers& to) {
    return ops::Linear{.x = x.tensor(), .weight = weight.tensor(), .y = to.tensor()};
  };
  reference->run(linear(expected));

  timed.run(linear(y));  // before start(): not counted
  EXPECT_EQ(y.values, expected.values);
  timed.start();
  timed.run(linear(y));
  timed.run(linear(y));
  timed.run(ops::Scale{.x = y.tensor(), .factor = 2});
  const std::vector<OpTime> times = total_times(timed.stop());
  timed.run(linear(y));  // after stop()

  EXPECT_THAT(names(times), UnorderedElementsAre("linear, 5 to 7", "scale"));
  const OpTime& products = find(times, "linear, 5 to 7");
  EXPECT_EQ(products.calls, 2);
  EXPECT_EQ(products.flops, 2 * 2 * 3 * 5 * 7);
  EXPECT_GT(products.seconds, 0);
  EXPECT_EQ(find(times, "scale").flops, 0);
  for (std::size_t i = 1; i < times.size(); ++i) {
    EXPECT_GE(times[i - 1].seconds, times[i].seconds);
  }
  timed.start();
  EXPECT_TRUE(timed.stop().empty());
}

TEST(TimedOps, HandsOnScratchMemoryAndAnswers) {
  const auto cpu = make_cpu_ops(2);
  TimedOps timed(*cpu);
  EXPECT_EQ(timed.name(), cpu->name());
  const LinearShape shape{.rows = 64, .in = 48, .out = 80};
  EXPECT_EQ(timed.scratch(shape), cpu->scratch(shape));
  EXPECT_EQ(timed.norm_scratch(64, 48), cpu->norm_scratch(64, 48));
  EXPECT_EQ(timed.implementation(shape, LinearPass::kForward),
            cpu->implementation(shape, LinearPass::kForward));

  Numbers x({64, 48}), weight({80, 48}), y({64, 80});
  const ops::Linear linear{.x = x.tensor(), .weight = weight.tensor(), .y = y.tensor()};
  std::vector<std::byte> memory(timed.scratch(shape));
  if (!memory.empty()) {
    EXPECT_THROW(timed.run(linear), Error);
  }
  timed.use_scratch(
      Tensor(memory.data(), DType::kU8, Shape{static_cast<std::int64_t>(memory.size())}));
  EXPECT_NO_THROW(timed.run(linear));
}

// The pairs that attention looks at, one by one.
double pairs_of(const ops::AttentionShape& shape) {
  double pairs = 0;
  for (std::int64_t query = 0; query < shape.queries; ++query) {
    for (std::int64_t key = 0; key < shape.keys; ++key) {
      const std::int64_t last = query + shape.keys - shape.queries;
      const bool in_window = shape.window == 0 || key > last - shape.window;
      if (!shape.causal || (key <= last && in_window)) ++pairs;
    }
  }
  return pairs;
}

TEST(TimedOps, CountsTheProductsOfAttentionWithWhatIsSeenAlone) {
  const auto reference = make_reference_ops();
  TimedOps timed(*reference);
  for (const std::int64_t window : {-1, 0, 1, 2, 4, 9}) {  // -1: not causal
    for (const std::int64_t queries : {1, 3, 4}) {
      for (const std::int64_t keys : {1, 3, 6}) {
        const ops::AttentionShape shape{.batch = 2,
                                        .queries = queries,
                                        .keys = keys,
                                        .heads = 3,
                                        .kv_heads = 3,
                                        .head_size = 4,
                                        .causal = window >= 0,
                                        .window = std::max<std::int64_t>(window, 0)};
        Numbers q({2 * queries, 12}), k({2 * keys, 12}), v({2 * keys, 12}), out({2 * queries, 12});
        Numbers log_sum({2, 3, queries});
        timed.start();
        timed.run(ops::Attention{.shape = shape,
                                 .q = {q.tensor()},
                                 .k = {k.tensor()},
                                 .v = {v.tensor()},
                                 .out = out.tensor(),
                                 .log_sum = log_sum.tensor()});
        const OpTime attention = find(total_times(timed.stop()), "attention");
        EXPECT_EQ(attention.flops, 2 * 2 * 2 * 3 * 4 * pairs_of(shape))
            << window << " " << queries << " " << keys;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
