// That layers in 8 bits are multiplied by cuBLASLt: where it refuses them plain loops give the same
// results, a thousand times slower.
#include <gmock/gmock.h>

#include "lockstep/tensor/cuda.h"
#include "tests/ops/cuda/gpu_ops.h"

namespace lockstep::ops_test {
namespace {

using ::testing::StartsWith;

class CudaFloat8 : public OnLiveGpu<::testing::Test> {
 protected:
  void SetUp() override {
    OnLiveGpu<::testing::Test>::SetUp();
    if (IsSkipped()) return;
    if (cuda_devices().at(static_cast<std::size_t>(kGpu.index)).capability <
        kLeastFloat8Capability) {
      GTEST_SKIP() << "this GPU multiplies no numbers of 8 bits";
    }
  }
};

// Memory of zeros, cut into tensors that begin at multiples of 256 bytes.
class Zeros {
 public:
  Zeros() { fill_zero(memory_.tensor(DType::kU8, {kBytes})); }
  Tensor next(DType dtype, const Shape& shape) {
    const Tensor tensor = memory_.tensor(dtype, shape, used_);
    used_ += (tensor.bytes() + 255) / 256 * 256;
    return tensor;
  }

 private:
  static constexpr std::int64_t kBytes = 64 << 20;
  Buffer memory_{static_cast<std::size_t>(kBytes), kGpu};
  std::size_t used_ = 0;
};

TEST_F(CudaFloat8, AllProductsOfALayerAreCublasLts) {
  Ops& ops = gpu_ops();
  for (const DType gradient : {DType::kBF16, DType::kF32}) {
    const LinearShape shape{.rows = 512,
                            .in = 256,
                            .out = 768,
                            .dtype = DType::kBF16,
                            .gradient = gradient,
                            .fp8 = true};
    Zeros zeros;
    ops.use_scratch(zeros.next(DType::kU8, {static_cast<std::int64_t>(ops.scratch(shape))}));
    // A row of several, as in a model.
    const Tensor scaling = zeros.next(DType::kF32, {3, ops::kScaling});
    const auto scale = [&](std::int64_t row) {
      return scaling.slice(row, 1).reshaped({ops::kScaling});
    };
    const auto bytes = [&](std::int64_t rows, std::int64_t columns) {
      return zeros.next(DType::kU8, {rows, columns});
    };
    const Tensor y = zeros.next(DType::kBF16, {shape.rows, shape.out});
    const Tensor dx = zeros.next(DType::kBF16, {shape.rows, shape.in});
    const Tensor dweight = zeros.next(gradient, {shape.out, shape.in});
    const ops::ScaledMatmul forward{.a = bytes(shape.rows, shape.in),
                                    .b = bytes(shape.out, shape.in),
                                    .a_scaling = scale(0),
                                    .b_scaling = scale(1),
                                    .bias = zeros.next(DType::kBF16, {shape.out}),
                                    .y = y,
                                    .fast = true};
    ops.run(forward);
    ops.run(ops::ScaledMatmul{.a = bytes(shape.rows, shape.out),
                              .b = bytes(shape.in, shape.out),
                              .a_format = Float8::kE5M2,
                              .a_scaling = scale(2),
                              .b_scaling = scale(1),
                              .y = dx});
    ops.run(ops::ScaledMatmul{.a = bytes(shape.out, shape.rows),
                              .b = bytes(shape.in, shape.rows),
                              .a_format = Float8::kE5M2,
                              .a_scaling = scale(2),
                              .b_scaling = scale(0),
                              .residual = dweight,
                              .y = dweight});
    ops.synchronize();
    for (const LinearPass pass :
         {LinearPass::kForward, LinearPass::kBackwardInput, LinearPass::kBackwardWeight}) {
      EXPECT_THAT(ops.implementation(shape, pass), StartsWith("cublaslt"))
          << "pass " << static_cast<int>(pass) << ", gradients " << name(gradient);
    }
    ops.use_scratch({});
  }
}

}  // namespace
}  // namespace lockstep::ops_test
