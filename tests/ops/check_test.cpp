// What the checks say, and which memory may be shared. That every field is checked at all is tested
// by the descriptions (descriptions_test.cpp in cpu/ and reference/).
#include "lockstep/ops/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Memory that tensors are cut from; nothing reads it.
class Check : public ::testing::Test {
 protected:
  Tensor at(std::size_t offset, const Shape& shape, DType dtype = DType::kF32) {
    return {memory_.data() + offset, dtype, shape};
  }
  Tensor next(const Shape& shape, DType dtype = DType::kF32) {
    const Tensor tensor = at(used_, shape, dtype);
    used_ += (tensor.bytes() + 63) / 64 * 64;
    return tensor;
  }
  template <class Op>
  std::string refusal(const Op& op, const Accepts& accepts = {}) {
    try {
      check(op, accepts);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "was not refused";
  }

 private:
  alignas(64) std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 16);
  std::size_t used_ = 0;
};

TEST_F(Check, NamesOperationAndFieldAndWhatWasExpected) {
  const Tensor x = next({2, 5}, DType::kBF16), weight = next({3, 4});
  EXPECT_EQ(refusal(Linear{.x = x, .weight = weight, .y = next({2, 3}, DType::kBF16)}),
            "linear: weight is [3, 4] f32, expected [*, 5] bf16 as x is");
  EXPECT_EQ(refusal(Linear{.x = x}), "linear: weight is [0] f32, expected [*, 5] bf16 as x is");
  EXPECT_EQ(refusal(Adam{.step = 0}), "adam: step is 0, expected 1 or more");
  EXPECT_EQ(
      refusal(Cast{.from = next({4}), .to = next({5})}),
      "cast: to is [5] f32, expected 4 elements of f32, f64, bf16 or f16 as many as from has");
  const Tensor elsewhere(x.data(), x.dtype(), x.shape(), {DeviceKind::kCuda, 0});
  EXPECT_EQ(refusal(Scale{.x = elsewhere}),
            "scale: x lies on cuda:0, expected cpu, where the operation runs");
  EXPECT_EQ(refusal(Scale{.x = x}, {.device = {DeviceKind::kCuda, 1}}),
            "scale: x lies on cpu, expected cuda:1, where the operation runs");
}

TEST_F(Check, TakesF64OnlyWhereTheImplementationDoes) {
  const Scale scale{.x = next({4}, DType::kF64)};
  EXPECT_THAT(refusal(scale), HasSubstr("expected [4] f32, bf16 or f16"));
  EXPECT_EQ(refusal(scale, {.f64 = true}), "was not refused");
}

TEST_F(Check, LetsAnOutputLieOnlyWhereItMay) {
  const Tensor a = next({4, 8}), b = next({4, 8}), square = next({8, 8}), wide = next({4, 8});
  EXPECT_EQ(refusal(Add{.a = a, .b = b, .y = a}), "was not refused");
  EXPECT_EQ(refusal(Linear{.x = a, .weight = square, .residual = b, .y = b}), "was not refused");
  EXPECT_EQ(refusal(Linear{.x = a, .weight = square, .y = a}),
            "linear: y and x share memory, expected them apart");
  EXPECT_EQ(refusal(Add{.a = a, .b = b, .y = at(64, {4, 8})}),
            "add: y and a share a part of their memory, expected all of it or none");
  EXPECT_EQ(refusal(SwiGluBackward{.gate_up = wide, .dy = next({4, 4}), .dgate_up = wide}),
            "was not refused");
}

TEST_F(Check, RefusesFieldsThatDoNotGoTogether) {
  const Tensor rows = next({4, 8}), square = next({8, 8}), dx = next({4, 8}), row = next({8});
  EXPECT_THAT(
      refusal(LinearBackwardInput{
          .dy = rows, .weight = square, .factor = next({4, 8}), .dx = dx, .accumulate = true}),
      HasSubstr("factor is [4, 8] f32, expected none together with accumulate"));
  Norm norm{.x = rows, .gain = row, .y = dx, .mean = next({4}), .rstd = next({4})};
  EXPECT_EQ(refusal(norm), "was not refused");
  norm.sum = next({4, 8});
  EXPECT_THAT(refusal(norm), HasSubstr("sum is [4, 8] f32, expected none without a branch"));
  norm.branch = next({4, 8});
  EXPECT_EQ(refusal(norm), "was not refused");
  norm.kind = NormKind::kRms;
  EXPECT_THAT(refusal(norm), HasSubstr("mean is [4] f32, expected none for an RMS norm"));
}

TEST_F(Check, RefusesAPartOfOutputsThatAreNotThere) {
  LinearBackwardWeight part{
      .dy = next({4, 8}), .x = next({4, 3}), .dweight = next({5, 3}), .dbias = next({5})};
  EXPECT_THAT(refusal(part),
              HasSubstr("linear_backward_weight: dweight is [5, 3] f32, expected [8, 3] f32"));
  for (const std::int64_t first : {0, 3}) {
    part.first_output = first;
    EXPECT_EQ(refusal(part), "was not refused");
  }
  part.first_output = 4;
  EXPECT_EQ(refusal(part), "linear_backward_weight: outputs 4 to 9 are asked for, and dy has 8");
  part.first_output = -1;
  EXPECT_THAT(refusal(part), HasSubstr("outputs -1 to 4"));
  part.first_output = 0;
  part.dbias = next({8});
  EXPECT_THAT(refusal(part),
              AllOf(HasSubstr("dbias is [8] f32, expected [5] f32"), HasSubstr("as dweight is")));
}

// The factors by which pairs turn slower, wherever the operation runs.
TEST_F(Check, TakesASlowingOfEveryPairInHostMemory) {
  Rotary op{.x = {next({3, 8}), 0}, .heads = 2, .head_size = 4, .sequence = 3};
  op.slowing = next({3});
  EXPECT_EQ(refusal(op), "rotary: slowing is [3] f32, expected [2] f32 for every pair");
  op.slowing = next({2}, DType::kBF16);
  EXPECT_EQ(refusal(op), "rotary: slowing is [2] bf16, expected [2] f32 for every pair");
  const Tensor factors = next({2});
  op.slowing = Tensor(factors.data(), DType::kF32, {2}, {DeviceKind::kCuda, 0});
  EXPECT_EQ(refusal(op), "rotary: slowing lies on cuda:0, expected it in host memory");
  op.slowing = factors;
  EXPECT_EQ(refusal(op), "was not refused");
  const Device gpu{DeviceKind::kCuda, 0};
  op.x.rows = Tensor(op.x.rows.data(), DType::kF32, {3, 8}, gpu);
  EXPECT_EQ(refusal(op, {.device = gpu}), "was not refused");
}

TEST_F(Check, RefusesADropoutThatKeepsNothingOrBeginsWithinABlock) {
  Drop drop{.x = next({4}), .y = next({4})};
  for (const double probability : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    drop.dropout.probability = probability;
    EXPECT_THAT(refusal(drop), HasSubstr("expected 0 or more and below 1"));
  }
  drop.dropout = {.probability = 0.5, .first = 6};
  EXPECT_THAT(refusal(drop), HasSubstr("dropout.first is 6, expected a multiple of 4"));
}

class AttentionCheck : public Check {
 protected:
  AttentionBackward packed() {
    const Tensor rows = next({6, 24}), gradients = next({6, 24}), out = next({6, 8});
    return {
        .shape = {.batch = 2, .queries = 3, .keys = 3, .heads = 2, .kv_heads = 2, .head_size = 4},
        .q = {rows, 0},
        .k = {rows, 8},
        .v = {rows, 16},
        .out = out,
        .log_sum = next({2, 2, 3}),
        .dout = next({6, 8}),
        .dq = {gradients, 0},
        .dk = {gradients, 8},
        .dv = {gradients, 16}};
  }
};

TEST_F(AttentionCheck, LetsGradientsShareRowsButNoColumns) {
  AttentionBackward attention = packed();
  EXPECT_EQ(refusal(attention), "was not refused");
  attention.dv.first = 12;
  EXPECT_THAT(refusal(attention), HasSubstr("dk and dv share memory"));
  attention.dv.first = 17;
  EXPECT_THAT(refusal(attention), HasSubstr("the 8 columns of dv begin at 17, expected them to lie "
                                            "in its rows, which have 24"));
  attention = packed();
  attention.dq.rows = attention.q.rows;
  EXPECT_THAT(refusal(attention), HasSubstr("dq and q share memory"));
}

TEST_F(AttentionCheck, RefusesHeadsThatCannotBeShared) {
  AttentionBackward attention = packed();
  attention.shape.heads = 3;
  EXPECT_THAT(refusal(attention), HasSubstr("kv_heads is 2, expected a divisor of shape.heads"));
  attention.shape.heads = 0;
  EXPECT_THAT(refusal(attention), HasSubstr("shape.heads is 0, expected 1 or more"));
  attention = packed();
  attention.shape.dtype = DType::kBF16;
  EXPECT_THAT(refusal(attention), HasSubstr("shape.dtype is bf16, expected f32 as q is"));
}

TEST(CheckIndices, NamesTheFirstThatIsOutside) {
  std::vector<std::int32_t> indices = {0, 4, kNoTarget, 5};
  const Tensor tensor = tensor_of(std::span(indices));
  const auto refusal = [&](std::int64_t limit, bool allow) -> std::string {
    try {
      check_indices(tensor, limit, "loss: targets", allow);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(6, true), "");
  EXPECT_EQ(refusal(6, false), "loss: targets[2] is -100, expected 0 to 5");
  EXPECT_EQ(refusal(5, true), "loss: targets[3] is 5, expected 0 to 4, or -100 for none");
  EXPECT_EQ(refusal(4, true), "loss: targets[1] is 4, expected 0 to 3, or -100 for none");
}

}  // namespace
}  // namespace lockstep::ops
