// What a step on a GPU is made of besides the described operations: the gradient of an activation's
// input, Adam over segments, sums of squares of chunks, and clipping; numbers that lie on the
// device.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/tensor/host_view.h"
#include "tests/ops/cuda/gpu_ops.h"

namespace lockstep::ops_test {
namespace {

class CudaUpdate : public OnLiveGpu<::testing::Test> {
 protected:
  Ops& gpu() { return gpu_ops(); }
  std::unique_ptr<Ops> plain_ = make_reference_ops();
};

// Elements on the CPU and the same on the GPU.
template <class T>
struct Pair {
  Pair(const Shape& shape, std::uint64_t seed, float spread = 1)
      : values(shape.elements()), here(tensor_of(std::span(values), shape)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(spread * (uniform_at(seed, 0, i) - 0.5f));
    }
    memory = Buffer(here.bytes(), kGpu);
    there = memory.tensor(here.dtype(), shape);
    copy(there, here);
  }
  explicit Pair(std::vector<T> given)
      : values(std::move(given)), here(tensor_of(std::span(values))) {
    memory = Buffer(here.bytes(), kGpu);
    there = memory.tensor(here.dtype(), here.shape());
    copy(there, here);
  }
  std::vector<T> back() const {
    const HostView view(there);
    return {view.as<T>().begin(), view.as<T>().end()};
  }

  std::vector<T> values;
  Tensor here;
  Buffer memory;
  Tensor there;
};

TEST_F(CudaUpdate, TheGradientOfAGelusInputIsTheReferences) {
  const Pair<float> dy({37, 24}, 1), weight({24, 40}, 2), z({37, 40}, 3, 6), dx({37, 40}, 4);
  const Buffer scratch(gpu().scratch(LinearShape{.rows = 37, .in = 40, .out = 24}), kGpu);
  plain_->run(ops::LinearBackwardInput{
      .dy = dy.here, .weight = weight.here, .factor = {}, .dx = dx.here, .z = z.here});
  gpu().use_scratch(scratch.tensor(DType::kU8, {static_cast<std::int64_t>(scratch.bytes())}));
  gpu().run(ops::LinearBackwardInput{
      .dy = dy.there, .weight = weight.there, .factor = {}, .dx = dx.there, .z = z.there});
  gpu().use_scratch({});
  gpu().synchronize();
  const std::vector<float> got = dx.back();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], dx.values[i], 2e-5) << i;
}

TEST_F(CudaUpdate, AdamOverSegmentsReadsItsNumbersOnTheDeviceAndLeavesTheRest) {
  constexpr std::int64_t kLength = 20000;
  const std::vector<ops::AdamSegment> segments = {
      {3, 1, true}, {4, 5000, false}, {5005, 9, true}, {6001, 13000, true}};
  Pair<float> master({kLength}, 1), gradient({kLength}, 2), first_moment({kLength}, 3),
      second_moment({kLength}, 4);
  for (float& one : second_moment.values) one = std::abs(one);
  copy(second_moment.there, second_moment.here);
  const Pair<std::int64_t> table(ops::adam_table(segments));
  const Shape rows{static_cast<std::int64_t>(table.values.size()) / 4, 4};
  const Pair<double> numbers({0.01, 3, 0.5});
  ops::AdamSegments call{.adam = {.master = master.here,
                                  .gradient = gradient.here,
                                  .first_moment = first_moment.here,
                                  .second_moment = second_moment.here,
                                  .rate = 0.01,
                                  .decay = 0.1,
                                  .step = 3,
                                  .gradient_scale = 0.5},
                         .table = table.here.reshaped(rows)};
  const std::vector<float> before = master.values;
  plain_->run(call);
  call.adam.master = master.there;
  call.adam.gradient = gradient.there;
  call.adam.first_moment = first_moment.there;
  call.adam.second_moment = second_moment.there;
  call.adam.rate = ops::Scalar(numbers.there.slice(0, 1));
  call.adam.step = ops::Scalar(numbers.there.slice(1, 1));
  call.adam.gradient_scale = ops::Scalar(numbers.there.slice(2, 1));
  call.table = table.there.reshaped(rows);
  gpu().run(call);
  gpu().synchronize();
  const std::vector<float> got = master.back();
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], master.values[i], 2e-6) << i;
    const bool is_outside = i < 3 || i == 5004 || i >= 19001;
    if (is_outside) {
      ASSERT_EQ(got[i], before[i]) << i;
    }
  }

  const Pair<double> skip(std::vector<double>{std::numeric_limits<double>::quiet_NaN()});
  call.adam.gradient_scale = ops::Scalar(skip.there);
  gpu().run(call);
  gpu().synchronize();
  EXPECT_EQ(master.back(), got);
}

TEST_F(CudaUpdate, ChunksHaveTheirSumsAndTheScaleFollows) {
  for (const std::int64_t count : {1, 64, 65536, 65537, 200001}) {
    const Pair<float> x({count}, 7);
    const std::int64_t chunks = (count + 65535) / 65536;
    const Pair<double> sums({chunks}, 1), norm({1}, 1), scale({1}, 1);
    const Pair<double> loss_scale({4.0});
    plain_->run(
        ops::ChunkedSumOfSquares{.x = x.here, .chunk_elements = 65536, .results = sums.here});
    plain_->run(ops::ClipScale{.squares = sums.here,
                               .limit = 0.1,
                               .loss_scale = 4,
                               .norm = norm.here,
                               .scale = scale.here});
    gpu().run(
        ops::ChunkedSumOfSquares{.x = x.there, .chunk_elements = 65536, .results = sums.there});
    gpu().run(ops::ClipScale{.squares = sums.there,
                             .limit = 0.1,
                             .loss_scale = ops::Scalar(loss_scale.there),
                             .norm = norm.there,
                             .scale = scale.there});
    gpu().synchronize();
    for (std::size_t i = 0; i < sums.values.size(); ++i) {
      EXPECT_NEAR(sums.back()[i], sums.values[i], 1e-6 * sums.values[i]) << count;
    }
    EXPECT_NEAR(norm.back()[0], norm.values[0], 1e-6 * norm.values[0]) << count;
    EXPECT_NEAR(scale.back()[0], scale.values[0], 1e-6 * scale.values[0]) << count;
  }
  const Pair<double> infinite(std::vector<double>{std::numeric_limits<double>::infinity()});
  const Pair<double> norm({1}, 1), scale({1}, 1);
  gpu().run(ops::ClipScale{.squares = infinite.there,
                           .limit = 1,
                           .loss_scale = 1,
                           .norm = norm.there,
                           .scale = scale.there});
  gpu().synchronize();
  EXPECT_TRUE(std::isinf(norm.back()[0]));
  EXPECT_TRUE(std::isnan(scale.back()[0]));
}

}  // namespace
}  // namespace lockstep::ops_test
