// Attention to keys in slices, merged by log-sum-exps: together they do what one attention to all
// keys does, and so do their gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/math/half.h"
#include "lockstep/ops/ops.h"

namespace lockstep::slices_test {
namespace {

// A tensor of any compute type that owns its elements.
class Owned {
 public:
  Owned(DType dtype, const Shape& shape, std::uint64_t seed = 0)
      : bytes_(shape.elements() * size_of(dtype)), tensor_(bytes_.data(), dtype, shape) {
    if (seed == 0) return;
    for (std::size_t i = 0; i < tensor_.elements(); ++i) {
      const float value = normal_at(seed, 0, i);
      if (dtype == DType::kBF16) tensor_.as<BFloat16>()[i] = to_bfloat16(value);
      if (dtype == DType::kF16) tensor_.as<Half>()[i] = to_half(value);
      if (dtype == DType::kF32) tensor_.as<float>()[i] = value;
    }
  }
  const Tensor& tensor() const { return tensor_; }
  float at(std::size_t i) const {
    if (tensor_.dtype() == DType::kBF16) return to_float(tensor_.as<BFloat16>()[i]);
    if (tensor_.dtype() == DType::kF16) return to_float(tensor_.as<Half>()[i]);
    return tensor_.as<float>()[i];
  }

 private:
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

void expect_near(const Owned& got, const Owned& want, double tolerance) {
  ASSERT_EQ(got.tensor().elements(), want.tensor().elements());
  for (std::size_t i = 0; i < got.tensor().elements(); ++i) {
    if (std::isinf(want.at(i))) {
      ASSERT_EQ(got.at(i), want.at(i)) << i;
    } else {
      ASSERT_NEAR(got.at(i), want.at(i), tolerance) << i;
    }
  }
}

double unit_of(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

struct Sliced {
  std::int64_t queries, heads, kv_heads, head_size;
  std::vector<std::int64_t> slices;  // keys; the last one is causal where the whole is
  bool causal = false;
  bool mask = false;
};

class SlicedAttention : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Ops> ops_ = GetParam() == "cpu" ? make_cpu_ops(2) : make_reference_ops();

  void expect_like_whole(const Sliced& sliced, DType dtype);
};
INSTANTIATE_TEST_SUITE_P(Slices, SlicedAttention, ::testing::Values("cpu", "reference"),
                         [](const auto& tested) { return tested.param; });

void SlicedAttention::expect_like_whole(const Sliced& sliced, DType dtype) {
  const std::int64_t width = sliced.heads * sliced.head_size;
  const std::int64_t kv = sliced.kv_heads * sliced.head_size;
  std::int64_t all = 0;
  for (const std::int64_t keys : sliced.slices) all += keys;
  const auto shape = [&](std::int64_t keys, bool causal) {
    return ops::AttentionShape{
        1, sliced.queries, keys, sliced.heads, sliced.kv_heads, sliced.head_size, causal, dtype};
  };
  const Shape rows{sliced.queries, width};
  const Owned q(dtype, rows, 11), kv_rows(dtype, {all, 2 * kv}, 12), dout(dtype, rows, 13);
  std::vector<std::uint8_t> masked(static_cast<std::size_t>(all), 1);
  // A whole slice of padding, and some more.
  for (std::size_t i = 0; i < masked.size(); ++i) {
    const bool of_first = i < static_cast<std::size_t>(sliced.slices[0]);
    if (sliced.mask && (of_first || i % 3 == 0)) masked[i] = 0;
  }
  const auto mask_of = [&](std::int64_t first, std::int64_t keys) {
    if (!sliced.mask) return Tensor();
    const auto part =
        std::span(masked).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(keys));
    return tensor_of(part, {1, keys});
  };
  std::vector<std::byte> scratch(ops_->scratch(shape(all, true)) + 64);
  ops_->use_scratch(
      tensor_of(std::span(reinterpret_cast<std::uint8_t*>(scratch.data()), scratch.size()),
                {static_cast<std::int64_t>(scratch.size())}));
  const auto attend = [&](std::int64_t first, std::int64_t keys, bool causal, const Tensor& out,
                          const Tensor& log_sum) {
    const Tensor part = kv_rows.tensor().slice(first, keys);
    ops_->run(ops::Attention{.shape = shape(keys, causal),
                             .scale = 0.5f,
                             .q = {q.tensor(), 0},
                             .k = {part, 0},
                             .v = {part, kv},
                             .key_mask = mask_of(first, keys),
                             .dropout = {},
                             .out = out,
                             .log_sum = log_sum,
                             .probabilities = {}});
  };
  const auto differentiate = [&](std::int64_t first, std::int64_t keys, bool causal,
                                 const Tensor& out, const Tensor& log_sum, const Tensor& dq,
                                 const Tensor& dkv) {
    const Tensor part = kv_rows.tensor().slice(first, keys);
    ops_->run(ops::AttentionBackward{.shape = shape(keys, causal),
                                     .scale = 0.5f,
                                     .q = {q.tensor(), 0},
                                     .k = {part, 0},
                                     .v = {part, kv},
                                     .key_mask = mask_of(first, keys),
                                     .dropout = {},
                                     .out = out,
                                     .log_sum = log_sum,
                                     .dout = dout.tensor(),
                                     .dq = {dq, 0},
                                     .dk = {dkv, 0},
                                     .dv = {dkv, kv}});
  };
  const Shape numbers{1, sliced.heads, sliced.queries};
  const Owned want(dtype, rows), want_log_sum(DType::kF32, numbers), want_dq(dtype, rows),
      want_dkv(dtype, {all, 2 * kv});
  attend(0, all, sliced.causal, want.tensor(), want_log_sum.tensor());
  differentiate(0, all, sliced.causal, want.tensor(), want_log_sum.tensor(), want_dq.tensor(),
                want_dkv.tensor());

  // From the last slice to the first, as a ring may have them.
  const Owned more(dtype, rows), more_log_sum(DType::kF32, numbers), sum(DType::kF32, rows),
      log_sum(DType::kF32, numbers), got(dtype, rows);
  std::int64_t first = all;
  for (std::size_t i = sliced.slices.size(); i-- > 0;) {
    const bool last = i + 1 == sliced.slices.size();
    first -= sliced.slices[i];
    attend(first, sliced.slices[i], last && sliced.causal, more.tensor(),
           last ? log_sum.tensor() : more_log_sum.tensor());
    if (last) {
      ops_->run(ops::Cast{.from = more.tensor(), .to = sum.tensor()});
      continue;
    }
    const Shape each{sliced.heads, sliced.queries};
    ops_->run(ops::MergeAttention{.heads = sliced.heads,
                                  .more = more.tensor(),
                                  .more_log_sum = more_log_sum.tensor().reshaped(each),
                                  .out = sum.tensor(),
                                  .log_sum = log_sum.tensor().reshaped(each)});
  }
  ops_->run(ops::Cast{.from = sum.tensor(), .to = got.tensor()});
  const double unit = unit_of(dtype);
  expect_near(got, want, 64 * unit);
  expect_near(log_sum, want_log_sum, 1e-5);

  const Owned dq(DType::kF32, rows), some_dq(dtype, rows), dkv(dtype, {all, 2 * kv});
  first = all;
  for (std::size_t i = sliced.slices.size(); i-- > 0;) {
    const bool last = i + 1 == sliced.slices.size();
    first -= sliced.slices[i];
    differentiate(first, sliced.slices[i], last && sliced.causal, got.tensor(), log_sum.tensor(),
                  some_dq.tensor(), dkv.tensor().slice(first, sliced.slices[i]));
    ops_->run(ops::CopyColumns{.from = {some_dq.tensor(), 0},
                               .to = {dq.tensor(), 0},
                               .columns = width,
                               .accumulate = !last});
  }
  const Owned got_dq(dtype, rows);
  ops_->run(ops::Cast{.from = dq.tensor(), .to = got_dq.tensor()});
  expect_near(got_dq, want_dq, 256 * unit);
  expect_near(dkv, want_dkv, 256 * unit);
  ops_->use_scratch({});
}

TEST_P(SlicedAttention, IsThatOfAllKeys) {
  const Sliced cases[] = {
      {.queries = 4, .heads = 2, .kv_heads = 2, .head_size = 8, .slices = {4, 4}},
      {.queries = 5, .heads = 4, .kv_heads = 2, .head_size = 16, .slices = {5, 7, 9}},
      {.queries = 6,
       .heads = 4,
       .kv_heads = 1,
       .head_size = 8,
       .slices = {6, 6, 6},
       .causal = true},
      {.queries = 70,
       .heads = 2,
       .kv_heads = 2,
       .head_size = 32,
       .slices = {33, 140},
       .causal = true},
      {.queries = 9, .heads = 2, .kv_heads = 2, .head_size = 8, .slices = {7, 8, 5}, .mask = true}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Sliced& sliced : cases) {
      SCOPED_TRACE(std::string(name(dtype)) + ", " + std::to_string(sliced.queries) + " queries");
      expect_like_whole(sliced, dtype);
    }
  }
}

// Whatever out holds where nothing was attended yet.
TEST_P(SlicedAttention, MergesWithNothing) {
  const float none = -std::numeric_limits<float>::infinity();
  std::vector<float> more = {1, 2, 3, 4}, out = {NAN, NAN, 5, 6}, more_log_sum = {0.5f, none},
                     log_sum = {none, 0.25f};
  ops_->run(ops::MergeAttention{.heads = 1,
                                .more = tensor_of(std::span(more), {2, 2}),
                                .more_log_sum = tensor_of(std::span(more_log_sum), {1, 2}),
                                .out = tensor_of(std::span(out), {2, 2}),
                                .log_sum = tensor_of(std::span(log_sum), {1, 2})});
  EXPECT_EQ(out, (std::vector<float>{1, 2, 5, 6}));
  EXPECT_EQ(log_sum, (std::vector<float>{0.5f, 0.25f}));
}

}  // namespace
}  // namespace lockstep::slices_test
