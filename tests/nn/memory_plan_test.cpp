// The plan is the allocator: what it says is what a replica takes, for every model.
#include "lockstep/nn/memory/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/plan/arithmetic.h"
#include "lockstep/tensor/device_memory.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

using ::testing::HasSubstr;

class PlanOnEveryOps : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Ops> ops_ = make_ops(GetParam());
};
INSTANTIATE_TEST_SUITE_P(MemoryPlan, PlanOnEveryOps, ::testing::ValuesIn(all_ops()),
                         [](const auto& tested) { return tested.param; });

std::size_t sum_of_classes(const MemoryPlan& plan) {
  std::size_t sum = 0;
  for (const GroupBytes& group : plan.by_class()) sum += group.bytes;
  return sum;
}

std::size_t bytes_of_class(const MemoryPlan& plan, std::string_view prefix) {
  std::size_t sum = 0;
  for (const GroupBytes& group : plan.by_class()) {
    if (group.group.starts_with(prefix)) sum += group.bytes;
  }
  return sum;
}

TEST_P(PlanOnEveryOps, PlannedBytesAreUsedBytesForEveryModelPrecisionAndRecomputation) {
  for (const Tiny tiny : kAllTiny) {
    for (const DType dtype : kComputeTypes) {
      for (const Recompute recompute : plan::kAllRecompute) {
        for (const double dropout : {0.0, 0.1}) {
          SCOPED_TRACE(name(tiny) + " " + std::string(lockstep::name(dtype)) + " " +
                       std::string(plan::name(recompute)));
          TinyBatch batch(tiny_batch_shape(tiny));
          Model model = make_tiny(tiny, dropout);
          MemoryPlan plan = plan_memory(model, tiny_setup(tiny, dtype, recompute), *ops_,
                                        OptimizerState::kMoments);
          const std::size_t planned = plan.bytes();
          EXPECT_EQ(sum_of_classes(plan), planned);
          const std::size_t before = memory_in_use({});
          reset_peak_memory({});
          {
            Replica replica(std::move(model), std::move(plan), *ops_);
            EXPECT_EQ(memory_in_use({}) - before, planned);
            replica.initialise(1);
            replica.forward_backward(batch.batch());
            replica.evaluate(batch.batch());
            EXPECT_EQ(memory_in_use({}) - before, planned);
          }
          EXPECT_EQ(peak_memory({}) - before, planned);
          EXPECT_EQ(memory_in_use({}), before);
        }
      }
    }
  }
}

// The same with no two requests on the same bytes, every one alive all the time.
MemoryPlan without_sharing(MemoryPlan plan) {
  for (Request& request : plan.requests) {
    request.first_step = 0;
    request.last_step = 1;
  }
  plan.layout = plan_layout(plan.requests);
  return plan;
}

TEST_P(PlanOnEveryOps, LifetimesAreLongEnough) {
  for (const Tiny tiny : kAllTiny) {
    for (const DType dtype : kComputeTypes) {
      for (const Recompute recompute : plan::kAllRecompute) {
        SCOPED_TRACE(name(tiny) + " " + std::string(lockstep::name(dtype)) + " " +
                     std::string(plan::name(recompute)));
        TinyBatch batch(tiny_batch_shape(tiny));
        const nn::Setup setup = tiny_setup(tiny, dtype, recompute);
        Replica sharing = make_replica(make_tiny(tiny, 0.1), setup, *ops_);
        Model model = make_tiny(tiny, 0.1);
        MemoryPlan wide =
            without_sharing(plan_memory(model, setup, *ops_, OptimizerState::kMoments));
        EXPECT_TRUE(tiny == Tiny::kLinear || wide.bytes() > sharing.plan().bytes());
        Replica apart(std::move(model), std::move(wide), *ops_);
        EXPECT_EQ(outcome_of(sharing, batch.batch()), outcome_of(apart, batch.batch()));
      }
    }
  }
}

nn::Setup setup_of(std::int64_t batch, std::int64_t sequence, DType dtype, Recompute recompute) {
  return {.shape = {.batch = batch, .sequence = sequence, .source_sequence = 0},
          .dtype = dtype,
          .gradient = DType::kF32,
          .recompute = recompute};
}

TEST_P(PlanOnEveryOps, AttentionMemoryIsLinearInTheSequence) {
  plan::ModelShape shape = plan::find_model("gpt2-124m");
  shape.positions = 8192;
  for (const Recompute recompute : plan::kAllRecompute) {
    std::size_t last = 0;
    for (const std::int64_t sequence : {1024, 2048, 4096, 8192}) {
      const MemoryPlan plan =
          plan_memory(make_model(shape), setup_of(1, sequence, DType::kBF16, recompute), *ops_,
                      OptimizerState::kMoments);
      const std::size_t bytes = bytes_of_class(plan, "activations") +
                                bytes_of_class(plan, "hand-over") +
                                bytes_of_class(plan, "workspace");
      // What does not grow at all (a chunk of logits) may make it less than twice.
      EXPECT_TRUE(last == 0 || bytes <= 2 * last) << sequence << " " << plan::name(recompute);
      last = bytes;
    }
    // The s x s scores of a single layer's heads would add 12 * 8192 * 2 bytes to a token's.
    EXPECT_LT(last / 8192, std::size_t{340'000}) << plan::name(recompute);
  }
}

TEST_P(PlanOnEveryOps, LayoutsLoseLittleBetweenLifetimes) {
  for (const char* name : {"gpt2-124m", "llama-7b", "bert-base"}) {
    for (const Recompute recompute : plan::kAllRecompute) {
      const MemoryPlan plan =
          plan_memory(make_model(trainable(plan::find_model(name))),
                      setup_of(4, 512, DType::kBF16, recompute), *ops_, OptimizerState::kMoments);
      EXPECT_LE(bytes_of_class(plan, "gaps"), plan.bytes() / 100)
          << name << " " << plan::name(recompute);
    }
  }
}

TEST(MemoryPlan, KeepsLessTheMoreIsRecomputed) {
  const auto ops = make_reference_ops();
  for (const char* name : {"gpt2-124m", "llama-7b", "bert-base"}) {
    std::vector<std::size_t> bytes;
    for (const Recompute recompute : plan::kAllRecompute) {
      bytes.push_back(plan_memory(make_model(trainable(plan::find_model(name))),
                                  setup_of(4, 512, DType::kBF16, recompute), *ops,
                                  OptimizerState::kMoments)
                          .bytes());
    }
    EXPECT_GT(bytes[0], bytes[1]) << name;
    EXPECT_GT(bytes[1], bytes[2]) << name;
  }
}

// With fused attention, a selective layer of GPT-2 keeps nine values of a row's width: q, k, v,
// what attention gathered, the sum, and the wide z; not 34 bytes' worth.
TEST(MemoryPlan, OfASelectiveLayerIsWhatItsHeaderSays) {
  const auto ops = make_reference_ops();
  const MemoryPlan plan = plan_memory(make_model(plan::find_model("gpt2-124m")),
                                      setup_of(4, 1024, DType::kBF16, Recompute::kSelective), *ops,
                                      OptimizerState::kMoments);
  const std::size_t rows = 4096;
  const std::size_t statistics = (4 * rows + 12 * rows) * 4;  // of two norms and of attention
  EXPECT_EQ(bytes_of_class(plan, "activations layer.3"), 9 * rows * 768 * 2 + statistics);
}

TEST(MemoryPlan, StatesTakeSixteenBytesPerParameterWithGradientsOfSixteenBits) {
  const auto ops = make_reference_ops();
  nn::Setup setup = setup_of(1, 8, DType::kBF16, Recompute::kNone);
  setup.gradient = DType::kBF16;
  const MemoryPlan plan =
      plan_memory(make_model(plan::find_model("gpt2-124m")), setup, *ops, OptimizerState::kMoments);
  const std::size_t states = bytes_of_class(plan, "parameters") +
                             bytes_of_class(plan, "gradients") + bytes_of_class(plan, "optimizer");
  EXPECT_NEAR(static_cast<double>(states) / static_cast<double>(plan.flat.count()), 16, 0.01);
}

TEST(MemoryPlan, HasNoMoreOptimizerStateThanTheOptimizerKeeps) {
  const auto ops = make_reference_ops();
  const auto bytes = [&](DType dtype, OptimizerState state) {
    const MemoryPlan plan =
        plan_memory(make_tiny(Tiny::kGpt2), tiny_setup(Tiny::kGpt2, dtype), *ops, state);
    return bytes_of_class(plan, "optimizer") / (4 * plan.flat.elements());
  };
  EXPECT_EQ(bytes(DType::kF32, OptimizerState::kNone), 0u);
  EXPECT_EQ(bytes(DType::kF32, OptimizerState::kVelocity), 1u);
  EXPECT_EQ(bytes(DType::kF32, OptimizerState::kMoments), 2u);
  EXPECT_EQ(bytes(DType::kBF16, OptimizerState::kNone), 1u);
  EXPECT_EQ(bytes(DType::kF16, OptimizerState::kMoments), 3u);
}

TEST(MemoryPlan, CountsTheFlopsOfTheArithmetic) {
  const auto ops = make_reference_ops();
  for (const plan::ModelShape& known : plan::known_models()) {
    const plan::ModelShape shape = trainable(known);
    nn::Setup setup = setup_of(2, 64, DType::kF32, Recompute::kFull);
    if (shape.is_encoder_decoder()) setup.shape.source_sequence = 64;
    const MemoryPlan plan = plan_memory(make_model(shape), setup, *ops, OptimizerState::kMoments);
    const plan::TokenFlops token = plan::count_flops(shape, 64);
    EXPECT_DOUBLE_EQ(plan.flops.forward, 128 * token.forward()) << shape.name;
    EXPECT_DOUBLE_EQ(plan.flops.backward, 128 * token.backward()) << shape.name;
    // The last product of a layer need not be done again.
    EXPECT_LE(plan.flops.recompute, 128 * token.recomputed(Recompute::kFull)) << shape.name;
    EXPECT_GE(plan.flops.recompute, 128 * 0.6 * token.recomputed(Recompute::kFull)) << shape.name;
  }
}

TEST(MemoryPlan, CountsTheFlopsOfWindows) {
  const auto ops = make_reference_ops();
  plan::ModelShape shape = tiny_shape(plan::Family::kQwen3);
  for (const plan::Count window : {1, 5, 63, 64, 100}) {
    shape.window = window;
    shape.unwindowed_layers = window == 5 ? 1 : 0;
    const nn::Setup setup = setup_of(2, 64, DType::kF32, Recompute::kNone);
    const MemoryPlan plan = plan_memory(make_model(shape), setup, *ops, OptimizerState::kMoments);
    EXPECT_DOUBLE_EQ(plan.flops.forward, 128 * plan::count_flops(shape, 64).forward()) << window;
  }
}

TEST(MemoryPlan, IsToldByClass) {
  const auto ops = make_reference_ops();
  const MemoryPlan plan = plan_memory(make_model(plan::find_model("gpt2-124m")),
                                      setup_of(4, 1024, DType::kBF16, Recompute::kNone), *ops,
                                      OptimizerState::kMoments);
  const std::string table = text(plan);
  for (const char* part :
       {"parameters", "gradients", "optimizer", "activations layer.0 .. layer.11", "hand-over",
        "workspace", "gaps", "12 x", "forward 1."}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  EXPECT_THAT(table, HasSubstr(std::to_string(plan.bytes())));
}

TEST(Models, OfMoreThanCanBeCountedAreRefused) {
  const auto refusal = [&](const auto& make) -> std::string {
    try {
      make();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto shape = [](plan::Family family, plan::Count layers, plan::Count hidden) {
    plan::ModelShape all = trainable(plan::usual_shape(family));
    all.layers = layers;
    all.hidden = all.feed_forward = hidden;
    all.heads = all.kv_heads = 1;
    if (all.has_experts()) all.experts = all.experts_per_token = 1;
    if (all.parts().encoder_decoder) all.decoder_layers = layers;
    return all;
  };
  constexpr plan::Count kHuge = std::numeric_limits<std::int32_t>::max() - 1;  // heads are even
  for (const plan::Family family : plan::kAllFamilies) {
    const auto make = [&](plan::Count layers, plan::Count hidden) {
      return refusal([&] { make_model(shape(family, layers, hidden)); });
    };
    EXPECT_THAT(make(1'000'000, 1'000'000), HasSubstr("at most 10000"));
    EXPECT_THAT(make(kHuge, kHuge), HasSubstr("at most 10000"));
    EXPECT_THAT(make(10'000, 1'000'000), HasSubstr("too many digits"));
    EXPECT_THAT(make(1, kHuge), HasSubstr("too many digits"));
    // Plausible sizes: deeper, wider and larger than any published model.
    EXPECT_NO_THROW(check_size(shape(family, 10'000, 65'536)));
    const bool two_stacks = plan::parts_of(family).encoder_decoder;
    EXPECT_NO_THROW(check_size(shape(family, two_stacks ? 50 : 100, 1'000'000)));
  }
  const auto translator = [&](std::int64_t layers, std::int64_t hidden) {
    return refusal([&] {
      make_encoder_decoder({.source_vocabulary = 77,
                            .target_vocabulary = 99,
                            .source_positions = 5,
                            .target_positions = 7,
                            .hidden = hidden,
                            .heads = 1,
                            .feed_forward = hidden,
                            .encoder_layers = 1,
                            .decoder_layers = layers});
    });
  };
  EXPECT_THAT(translator(1'000'000, 8), HasSubstr("at most 10000"));
  plan::ModelShape mixture = shape(plan::Family::kMixtral, 2, 8);
  mixture.experts = 1'000'000;
  EXPECT_THAT(refusal([&] { make_model(mixture); }),
              HasSubstr("a layer of 1000000 experts is too wide: at most 4096"));
  EXPECT_THAT(translator(1, std::int64_t{kHuge}), HasSubstr("too many digits"));
  EXPECT_EQ(translator(2, 8), "nothing was thrown");
}

TEST(MemoryPlan, RefusesSetupsThatCannotBe) {
  const auto ops = make_reference_ops();
  const auto refusal = [&](const nn::Setup& setup, Tiny tiny) -> std::string {
    try {
      plan_memory(make_tiny(tiny), setup, *ops, OptimizerState::kMoments);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "nothing was thrown";
  };
  nn::Setup setup = tiny_setup(Tiny::kGpt2);
  setup.shape.sequence = 12;
  EXPECT_THAT(refusal(setup, Tiny::kGpt2), HasSubstr("longer than the 11 positions"));
  setup = tiny_setup(Tiny::kGpt2);
  setup.shape.batch = 0;
  EXPECT_THAT(refusal(setup, Tiny::kGpt2), HasSubstr("0 sequences"));
  setup = tiny_setup(Tiny::kGpt2, DType::kI32);
  EXPECT_THAT(refusal(setup, Tiny::kGpt2), HasSubstr("not in i32"));
  setup = tiny_setup(Tiny::kGpt2, DType::kBF16);
  setup.gradient = DType::kF16;
  EXPECT_THAT(refusal(setup, Tiny::kGpt2), HasSubstr("not f16"));
  setup = tiny_setup(Tiny::kLinear);
  setup.shape.sequence = 2;
  EXPECT_THAT(refusal(setup, Tiny::kLinear), HasSubstr("sequences of length 1"));
  setup = tiny_setup(Tiny::kGpt2);
  EXPECT_THAT(refusal(setup, Tiny::kEncoderDecoder), HasSubstr("source"));
}

}  // namespace
}  // namespace lockstep::nn
