// The GPU's operations against those of the CPU on shapes as they are in models, where other
// kernels run than in the small cases: GPT-2's, and attention around the edges of its tiles.
#include <thread>

#include "lockstep/bench/ops/attention.h"
#include "tests/ops/cuda/gpu_ops.h"

namespace lockstep::ops_test {
namespace {

// Both are allowed to be so far from the reference.
constexpr double kTwoImplementations = 2;
// Tensor cores sum thousands of products with fewer bits than f32 has.
constexpr double kTensorCores = 4;
constexpr std::size_t kMostBytes = std::size_t{200} << 20;  // of a field
constexpr std::int64_t kElements = (1 << 20) + 3;

bool uses_tensor_cores(const std::string& operation) {
  return operation.starts_with("linear") || operation.starts_with("attention") ||
         operation == "scaled_matmul";
}

Ops& cpu_ops() {
  static const std::unique_ptr<Ops> made =
      make_cpu_ops(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  return *made;
}

// Operations on all parameters of a model, on fewer; all of their fields are as long.
OpCase shortened(OpCase one) {
  for (OpField& field : one.fields) {
    if (field.bytes() > kMostBytes && field.shape.dimensions() == 1) field.shape = {kElements};
  }
  return one;
}

struct Typical {
  OpDescription description;
  DType dtype;
};

std::vector<Typical> all_typical() {
  std::vector<Typical> all;
  for (const OpDescription& description : bench::op_descriptions()) {
    for (const DType dtype : kComputeTypes) all.push_back({description, dtype});
  }
  return all;
}

void PrintTo(const Typical& typical, std::ostream* out) {
  *out << typical.description.name << " " << name(typical.dtype);
}

class CudaTypical : public OnLiveGpu<::testing::TestWithParam<Typical>> {};

TEST_P(CudaTypical, MatchesTheCpu) {
  const auto& [description, dtype] = GetParam();
  const OpCase one = shortened(description.typical(dtype));
  Problems problems;
  check_case(problems, description.name, dtype, one, cpu_ops(), {Places::kEven},
             uses_tensor_cores(description.name) ? kTensorCores : kTwoImplementations);
}

INSTANTIATE_TEST_SUITE_P(Gpt2, CudaTypical, ::testing::ValuesIn(all_typical()),
                         [](const ::testing::TestParamInfo<Typical>& one) {
                           return fmt::format("{}_{}", one.param.description.name,
                                              name(one.param.dtype));
                         });

// ---- attention

using bench::AttentionOptions;
using ops::AttentionShape;

std::vector<AttentionOptions> attentions(DType dtype, std::int64_t head_size) {
  std::vector<AttentionOptions> all;
  const auto add = [&](std::int64_t batch, std::int64_t queries, std::int64_t keys,
                       std::int64_t heads, std::int64_t kv_heads, bool causal,
                       std::int64_t window = 0) {
    const AttentionShape shape{batch,     queries, keys,  heads, kv_heads,
                               head_size, causal,  dtype, window};
    all.push_back({.shape = shape, .packed = queries == keys, .gap = 0});
  };
  for (const bool causal : {true, false}) {
    for (const std::int64_t length : {63, 64, 65, 127, 128, 129, 191, 257, 384, 1000}) {
      add(2, length, length, 2, 2, causal);
    }
    add(1, 300, 300, 6, 2, causal);
    add(1, 257, 257, 4, 1, causal);
    add(2, 100, 333, 2, 1, causal);
    add(1, 333, 100, 2, 2, causal);  // causal: some see nothing
    add(1, 1, 700, 4, 2, causal);
    add(3, 130, 64, 2, 2, causal);
    add(1, 257, 4161, 2, 1, causal);  // many keys
    add(1, 4161, 4161, 1, 1, causal);
  }
  // Windows that end inside, at and behind tiles of queries and keys.
  for (const std::int64_t window : {1, 31, 64, 65, 129, 500}) {
    add(1, 400, 400, 4, 2, true, window);
    add(1, 100, 333, 2, 1, true, window);
    add(1, 333, 100, 2, 2, true, window);
    add(2, 1, 700, 4, 2, true, window);
    add(1, 5, 1300, 2, 1, true, window);
  }
  // Biases whose farthest distance is inside a tile, at its edge, and beyond all keys.
  for (const std::int64_t distances : {1, 33, 65, 129, 257, 1501}) {
    const auto add_biased = [&](std::int64_t queries, std::int64_t keys, std::int64_t heads,
                                std::int64_t kv_heads, bool causal, bool mask) {
      const AttentionShape shape{2,         queries, keys,  heads, kv_heads,
                                 head_size, causal,  dtype, 0,     distances};
      all.push_back({.shape = shape, .mask = mask, .packed = queries == keys, .gap = 0});
    };
    add_biased(64, 64, 2, 2, true, false);
    add_biased(257, 257, 4, 2, false, true);
    add_biased(640, 640, 2, 2, true, false);
    add_biased(100, 333, 2, 1, false, false);
    add_biased(333, 100, 2, 2, true, true);  // some see nothing
    add_biased(1, 300, 4, 2, true, false);
  }
  all.push_back({.shape = {2, 200, 200, 4, 2, head_size, false, dtype, 0, 101},
                 .mask = true,
                 .dropout = 0.1,
                 .packed = true,
                 .gap = 0});
  all.push_back({.shape = {2, 200, 200, 3, 3, head_size, true, dtype, 70},
                 .mask = true,
                 .dropout = 0.1,
                 .packed = true,
                 .gap = 0});
  AttentionOptions dropping{.shape = {2, 200, 200, 3, 3, head_size, true, dtype},
                            .dropout = 0.1,
                            .packed = true,
                            .gap = 0};
  all.push_back(dropping);
  dropping.shape.causal = false;
  dropping.mask = true;
  all.push_back(dropping);
  dropping.dropout = 0;
  all.push_back(dropping);
  return all;
}

struct AttentionTest {
  DType dtype;
  std::int64_t head_size;
};
void PrintTo(const AttentionTest& test, std::ostream* out) {
  *out << name(test.dtype) << " " << test.head_size;
}

class CudaAttention : public OnLiveGpu<::testing::TestWithParam<AttentionTest>> {
 protected:
  void expect(const char* operation, OpCase (*make)(const AttentionOptions&)) {
    const auto& [dtype, head_size] = GetParam();
    Problems problems;
    for (const AttentionOptions& options : attentions(dtype, head_size)) {
      const bool goes_on = check_case(problems, operation, dtype, make(options), cpu_ops(),
                                      {Places::kEven}, kTensorCores);
      if (!goes_on) return;
    }
  }
};

TEST_P(CudaAttention, ForwardMatchesTheCpu) { expect("attention", bench::attention_case); }
TEST_P(CudaAttention, BackwardMatchesTheCpu) {
  expect("attention_backward", bench::attention_backward_case);
}

std::vector<AttentionTest> attention_tests() {
  std::vector<AttentionTest> all;
  for (const DType dtype : kComputeTypes) {
    for (const std::int64_t head_size : {32, 64, 80, 128}) all.push_back({dtype, head_size});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttention, ::testing::ValuesIn(attention_tests()),
                         [](const ::testing::TestParamInfo<AttentionTest>& one) {
                           return fmt::format("{}_{}", name(one.param.dtype), one.param.head_size);
                         });

}  // namespace
}  // namespace lockstep::ops_test
