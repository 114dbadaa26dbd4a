// Linear layers on the CPU against the reference: all passes, types and what is fused to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_features.h"
#include "lockstep/ops/cpu/gemm/onednn.h"
#include "lockstep/ops/element.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr DType kLinearTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// A tensor with memory of its own, of random multiples of a quarter: so small that all sums are
// exact in f32, and there is one right result whatever their order.
struct RandomQuarters {
  RandomQuarters(DType dtype, const Shape& shape, std::mt19937& random)
      : buffer(Tensor::bytes_of(dtype, shape)), tensor(buffer.tensor(dtype, shape)) {
    ops::with_float_type(dtype, [&]<class T>(T) {
      for (T& element : tensor.as<T>()) {
        element = ops::rounded<T>((static_cast<double>(random() % 9) - 4) / 4);
      }
    });
  }
  Buffer buffer;
  Tensor tensor;
};

std::vector<double> values(const Tensor& tensor) {
  std::vector<double> all;
  ops::with_float_type(tensor.dtype(), [&]<class T>(T) {
    for (const T& element : tensor.as<const T>()) all.push_back(ops::to_double(element));
  });
  return all;
}

// Functions of vectors are not exact: units in the last place of a type.
double unit(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF16:
      return 0x1p-10;
    default:
      return 0x1p-21;
  }
}

void expect_near(const Tensor& got, const Tensor& expected, const char* what) {
  const auto a = values(got);
  const auto b = values(expected);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-6 + unit(got.dtype()) * std::fabs(b[i]))
        << what << "[" << i << "], " << name(got.dtype());
  }
}

struct Layer {
  Layer(const LinearShape& layer, unsigned seed) : shape(layer), random(seed) {}

  RandomQuarters make(std::int64_t rows, std::int64_t columns) {
    return {shape.dtype, Shape{rows, columns}, random};
  }

  LinearShape shape;
  std::mt19937 random;
  RandomQuarters x = make(shape.rows, shape.in);
  RandomQuarters weight = make(shape.out, shape.in);
  RandomQuarters bias{shape.dtype, Shape{shape.out}, random};
  RandomQuarters residual = make(shape.rows, shape.out);
  RandomQuarters y = make(shape.rows, shape.out);
  RandomQuarters derivative = make(shape.rows, shape.out);
  RandomQuarters dy = make(shape.rows, shape.out);
  RandomQuarters factor = make(shape.rows, shape.in);
  RandomQuarters dx = make(shape.rows, shape.in);
  RandomQuarters dweight{shape.gradient, Shape{shape.out, shape.in}, random};
  RandomQuarters dbias{shape.gradient, Shape{shape.out}, random};
};

// Runs the call of a layer on both sides, each with its own copy of all tensors.
class Twins {
 public:
  Twins(const LinearShape& shape, int threads)
      : shape_(shape), cpu_(make_cpu_ops(threads)), scratch_(cpu_->scratch(shape)) {
    cpu_->use_scratch(scratch_.tensor(DType::kU8, {static_cast<std::int64_t>(scratch_.bytes())}));
  }

  template <class MakeCall>
  void expect_same(RandomQuarters Layer::*output, const char* what, MakeCall make_call) {
    Layer expected(shape_, 5);
    Layer got(shape_, 5);
    reference_->run(make_call(expected));
    cpu_->run(make_call(got));
    EXPECT_EQ(values((got.*output).tensor), values((expected.*output).tensor)) << what;
  }

  void expect_near_activation(ops::Activation activation) {
    Layer expected(shape_, 5);
    Layer got(shape_, 5);
    const auto call = [=](Layer& l) {
      return ops::LinearActivation{.x = l.x.tensor,
                                   .weight = l.weight.tensor,
                                   .bias = l.bias.tensor,
                                   .activation = activation,
                                   .y = l.y.tensor,
                                   .derivative = l.derivative.tensor};
    };
    reference_->run(call(expected));
    cpu_->run(call(got));
    expect_near(got.y.tensor, expected.y.tensor, "activated y");
    expect_near(got.derivative.tensor, expected.derivative.tensor, "derivative");
  }

 private:
  LinearShape shape_;
  std::unique_ptr<Ops> reference_ = make_reference_ops();
  std::unique_ptr<Ops> cpu_;
  Buffer scratch_;
};

void expect_all_passes(const LinearShape& shape, int threads) {
  SCOPED_TRACE(std::to_string(shape.rows) + " rows, " + std::to_string(shape.in) + " to " +
               std::to_string(shape.out) + ", " + std::to_string(threads) + " threads");
  Twins twins(shape, threads);
  twins.expect_same(&Layer::y, "y", [](Layer& l) {
    return ops::Linear{.x = l.x.tensor, .weight = l.weight.tensor, .y = l.y.tensor};
  });
  twins.expect_same(&Layer::y, "y with bias and residual", [](Layer& l) {
    return ops::Linear{.x = l.x.tensor,
                       .weight = l.weight.tensor,
                       .bias = l.bias.tensor,
                       .residual = l.residual.tensor,
                       .y = l.y.tensor};
  });
  twins.expect_same(&Layer::y, "y on its residual", [](Layer& l) {
    return ops::Linear{
        .x = l.x.tensor, .weight = l.weight.tensor, .residual = l.y.tensor, .y = l.y.tensor};
  });
  for (const ops::Activation activation :
       {ops::Activation::kGeluTanh, ops::Activation::kGeluErf, ops::Activation::kRelu}) {
    twins.expect_near_activation(activation);
  }
  twins.expect_same(&Layer::dx, "dx", [](Layer& l) {
    return ops::LinearBackwardInput{
        .dy = l.dy.tensor, .weight = l.weight.tensor, .dx = l.dx.tensor};
  });
  twins.expect_same(&Layer::dx, "dx with factor", [](Layer& l) {
    return ops::LinearBackwardInput{
        .dy = l.dy.tensor, .weight = l.weight.tensor, .factor = l.factor.tensor, .dx = l.dx.tensor};
  });
  twins.expect_same(&Layer::dx, "dx accumulated", [](Layer& l) {
    return ops::LinearBackwardInput{
        .dy = l.dy.tensor, .weight = l.weight.tensor, .dx = l.dx.tensor, .accumulate = true};
  });
  const auto backward_weight = [](Layer& l) {
    return ops::LinearBackwardWeight{
        .dy = l.dy.tensor, .x = l.x.tensor, .dweight = l.dweight.tensor, .dbias = l.dbias.tensor};
  };
  twins.expect_same(&Layer::dweight, "dweight", backward_weight);
  twins.expect_same(&Layer::dbias, "dbias", backward_weight);
}

TEST(LinearLayers, MatchTheReference) {
  constexpr std::int64_t kShapes[][3] = {{1, 1, 1},  {0, 3, 4},    {5, 0, 3},    {3, 2, 0},
                                         {3, 17, 7}, {64, 13, 12}, {7, 129, 41}, {70, 65, 200}};
  for (const auto& [rows, in, out] : kShapes) {
    for (const DType dtype : kLinearTypes) {
      for (const DType gradient : {dtype, DType::kF32}) {
        for (const int threads : {1, 3}) {
          expect_all_passes(
              {.rows = rows, .in = in, .out = out, .dtype = dtype, .gradient = gradient}, threads);
        }
      }
    }
  }
}

// A layer's gradient, made in parts: all of it, and each part of its own columns.
TEST(LinearLayers, AddGradientsOfParts) {
  constexpr std::int64_t kShapes[][3] = {{1, 1, 2},  {0, 3, 4},     {5, 0, 3},
                                         {3, 17, 7}, {70, 65, 200}, {600, 24, 67}};
  for (const auto& [rows, in, out] : kShapes) {
    for (const DType dtype : kLinearTypes) {
      for (const DType gradient : {dtype, DType::kF32}) {
        for (const std::int64_t part : {std::int64_t{1}, (out + 1) / 2, out}) {
          for (const int threads : {1, 3}) {
            SCOPED_TRACE(fmt::format("{} rows, {} to {} in parts of {}, {} {}, {} threads", rows,
                                     in, out, part, name(dtype), name(gradient), threads));
            const LinearShape shape{
                .rows = rows, .in = in, .out = out, .dtype = dtype, .gradient = gradient};
            Layer whole(shape, 5);
            make_reference_ops()->run(ops::LinearBackwardWeight{.dy = whole.dy.tensor,
                                                                .x = whole.x.tensor,
                                                                .dweight = whole.dweight.tensor,
                                                                .dbias = whole.dbias.tensor});
            Layer parts(shape, 5);
            const auto cpu = make_cpu_ops(threads);
            for (std::int64_t first = 0; first < out; first += part) {
              const std::int64_t count = std::min(part, out - first);
              LinearShape some = shape;
              some.out = count;
              some.of_outputs = out;
              const Buffer scratch(cpu->scratch(some));
              cpu->use_scratch(
                  scratch.tensor(DType::kU8, {static_cast<std::int64_t>(scratch.bytes())}));
              cpu->run(
                  ops::LinearBackwardWeight{.dy = parts.dy.tensor,
                                            .x = parts.x.tensor,
                                            .dweight = parts.dweight.tensor.slice(first, count),
                                            .dbias = parts.dbias.tensor.slice(first, count),
                                            .first_output = first});
              cpu->synchronize();
            }
            EXPECT_EQ(values(parts.dweight.tensor), values(whole.dweight.tensor));
            EXPECT_EQ(values(parts.dbias.tensor), values(whole.dbias.tensor));
          }
        }
      }
    }
  }
}

// Sums of columns that several threads share, and sums over several groups of rows.
TEST(LinearLayers, AddUpBiasGradientsOfManyRows) {
  for (const DType dtype : kLinearTypes) {
    expect_all_passes({.rows = 700, .in = 2, .out = 67, .dtype = dtype, .gradient = DType::kF32},
                      2);
  }
}

TEST(LinearLayers, ActivateAsActivateDoes) {
  using ops::Activation;
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu}) {
    for (const DType dtype : kLinearTypes) {
      const LinearShape shape{.rows = 70, .in = 65, .out = 67, .dtype = dtype};
      const auto ops = make_cpu_ops(2);
      const Buffer scratch(ops->scratch(shape));
      ops->use_scratch(scratch.tensor(DType::kU8, {static_cast<std::int64_t>(scratch.bytes())}));
      Layer fused(shape, 3);
      Layer apart(shape, 3);
      ops->run(ops::LinearActivation{.x = fused.x.tensor,
                                     .weight = fused.weight.tensor,
                                     .bias = fused.bias.tensor,
                                     .activation = activation,
                                     .y = fused.y.tensor,
                                     .derivative = fused.derivative.tensor});
      ops->run(ops::Linear{.x = apart.x.tensor,
                           .weight = apart.weight.tensor,
                           .bias = apart.bias.tensor,
                           .y = apart.y.tensor});
      ops->run(ops::Activate{.activation = activation,
                             .z = apart.y.tensor,
                             .y = apart.y.tensor,
                             .derivative = apart.derivative.tensor});
      EXPECT_EQ(values(fused.y.tensor), values(apart.y.tensor)) << name(dtype);
      EXPECT_EQ(values(fused.derivative.tensor), values(apart.derivative.tensor)) << name(dtype);
    }
  }
}

TEST(LinearLayers, RefuseTooLittleScratchMemory) {
  const LinearShape shape{.rows = 16, .in = 16, .out = 16};
  const auto ops = make_cpu_ops(1);
  const Buffer scratch(ops->scratch(shape) - 1);
  ops->use_scratch(scratch.tensor(DType::kU8, {static_cast<std::int64_t>(scratch.bytes())}));
  Layer layer(shape, 1);
  const auto before = values(layer.y.tensor);
  EXPECT_THROW(ops->run(ops::Linear{
                   .x = layer.x.tensor, .weight = layer.weight.tensor, .y = layer.y.tensor}),
               Error);
  EXPECT_EQ(values(layer.y.tensor), before);
}

// The layers of models, each with 4096 tokens at once; heads in chunks of rows, and what is left of
// them.
TEST(LinearLayers, OfModelsNeverTakeASlowPath) {
  constexpr std::int64_t kLayers[][3] = {// GPT-2 124M
                                         {4096, 768, 2304},
                                         {4096, 768, 768},
                                         {4096, 768, 3072},
                                         {4096, 3072, 768},
                                         {320, 768, 50257},
                                         {256, 768, 50257},
                                         // Llama 7B, and one with fewer heads of keys and values
                                         {4096, 4096, 4096},
                                         {4096, 4096, 12288},
                                         {4096, 4096, 1024},
                                         {4096, 4096, 11008},
                                         {4096, 11008, 4096},
                                         {512, 4096, 32000},
                                         // BERT, an encoder-decoder of 512
                                         {512, 768, 30522},
                                         {4096, 512, 512},
                                         {4096, 512, 1024},
                                         {4096, 512, 2048},
                                         {4096, 2048, 512}};
  cpu::ThreadTeam team(2);
  // LOCKSTEP_KERNELS may have asked for less than the CPU has.
  const Isa isa = chosen_isa();
  // Whether oneDNN is there at all depends on how lockstep was built and where it runs.
  const bool expects_onednn =
      isa == available_isas().front() && cpu::gemm::make_onednn({team, isa}) != nullptr;
  const auto ops = make_cpu_ops(2);
  for (const auto& [rows, in, out] : kLayers) {
    for (const DType dtype : kLinearTypes) {
      const LinearShape shape{.rows = rows, .in = in, .out = out, .dtype = dtype};
      for (const LinearPass pass :
           {LinearPass::kForward, LinearPass::kBackwardInput, LinearPass::kBackwardWeight}) {
        const std::string got = ops->implementation(shape, pass);
        EXPECT_THAT(got, Not(HasSubstr("ref")));
        if (isa != Isa::kScalar) {
          EXPECT_THAT(got, Not(HasSubstr("scalar")));
        }
        const bool has_avx512 = isa == Isa::kAvx512 || isa == Isa::kAmx;
        if (has_avx512 && dtype == DType::kF32) {
          EXPECT_EQ(got, "packed, avx512") << rows << " rows, " << in << " to " << out;
        } else if (isa == Isa::kAmx && dtype == DType::kBF16) {
          EXPECT_THAT(got, HasSubstr("amx")) << rows << " rows, " << in << " to " << out;
        } else if (expects_onednn && dtype == DType::kBF16 && cpu_features().avx512_bf16) {
          EXPECT_THAT(got, HasSubstr("avx512_core_bf16"))
              << rows << " rows, " << in << " to " << out;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
