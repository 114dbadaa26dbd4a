// Training on a GPU: every family has the losses and gradients of the reference, the same settings
// give the same bits, and a step launched from captured graphs is the step that was queued.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "lockstep/bench/train/synthetic_batches.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/host_view.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/nn/tiny_models.h"
#include "tests/tensor/cuda/gpu.h"
#include "tests/train/trainer/fp8_cases.h"
#include "tests/train/trainer/random_sequences.h"

namespace lockstep::train {
namespace {

using lockstep::testing::kGpu;
using lockstep::testing::OnGpu;
using plan::Precision;

constexpr RecomputeChoice kModes[] = {RecomputeChoice::kNone, RecomputeChoice::kSelective,
                                      RecomputeChoice::kFull};

class CudaTraining : public OnGpu<::testing::Test> {};

std::vector<float> floats_of(const Tensor& tensor) {
  const HostView view(tensor);
  const auto elements = view.as<float>();
  return {elements.begin(), elements.end()};
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, static_cast<double>(std::abs(value)));
  return most;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& expected, double part,
                 const std::string& of) {
  ASSERT_EQ(got.size(), expected.size());
  const double allowed = part * largest(expected);
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], allowed) << of << ", element " << i;
  }
}

TEST_F(CudaTraining, EveryFamilyHasTheLossesAndGradientsOfTheReference) {
  for (const nn::Tiny tiny : nn::kAllTiny) {
    for (const nn::Recompute recompute :
         {nn::Recompute::kNone, nn::Recompute::kSelective, nn::Recompute::kFull}) {
      nn::Setup setup = nn::tiny_setup(tiny, DType::kF32);
      setup.recompute = recompute;
      const auto reference = make_reference_ops();
      const auto gpu = make_cuda_ops(0);
      nn::TinyBatch batch(nn::tiny_batch_shape(tiny));
      const nn::MicroBatch micro_batch{.seed = 5, .step = 3, .loss_factor = 0.25};
      std::vector<float> losses[2], gradients[2];
      Ops* const both[] = {reference.get(), gpu.get()};
      for (int i = 0; i < 2; ++i) {
        nn::Replica replica = nn::make_replica(nn::make_tiny(tiny, 0.1), setup, *both[i]);
        replica.initialise(7);
        const Tensor of = replica.forward_backward(batch.batch(), micro_batch);
        both[i]->synchronize();
        losses[i] = floats_of(of);
        gradients[i] = floats_of(replica.states().gradients);
      }
      const std::string of = nn::name(tiny);
      expect_near(losses[1], losses[0], 1e-4, of + ", losses");
      expect_near(gradients[1], gradients[0], 1e-3, of + ", gradients");
    }
  }
}

struct Trained {
  std::vector<float> master;
  std::vector<double> losses;
  bool operator==(const Trained&) const = default;
};

Trained trained(Ops& ops, const TrainOptions& options, int steps) {
  Trainer trainer(options, ops);
  Sequences sequences(4, 7);
  Trained result;
  for (int i = 0; i < steps; ++i) {
    result.losses.push_back(trainer.step(sequences.batches(options.batch.micro)).loss);
  }
  result.master = floats_of(trainer.replica().states().master);
  return result;
}

// The first step is queued, those after it are launched from graphs.
TEST_F(CudaTraining, FollowsTheCpusCurve) {
  for (const optim::OptimizerKind kind :
       {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kAdam, optim::OptimizerKind::kSgd}) {
    for (const int micro : {4, 2}) {
      for (const double dropout : {0.0, 0.1}) {
        TrainOptions options = tiny_options();
        options.model.dropout = dropout;
        options.optimizer.kind = kind;
        options.batch.micro = micro;
        options.batch.accumulation = 4 / micro;
        if (kind == optim::OptimizerKind::kSgd) options.schedule.learning_rate = 0.1;
        const auto gpu = make_cuda_ops(0);
        const auto cpu = make_cpu_ops(2);
        const Trained there = trained(*gpu, options, 8);
        const Trained here = trained(*cpu, options, 8);
        for (std::size_t i = 0; i < here.losses.size(); ++i) {
          EXPECT_NEAR(there.losses[i], here.losses[i], 1e-3)
              << name(kind) << ", micro " << micro << ", dropout " << dropout << ", step " << i + 1;
        }
      }
    }
  }
}

TEST_F(CudaTraining, TheSameOptionsGiveTheSameBitsHoweverMuchIsRecomputed) {
  for (const Precision precision : plan::kAllPrecisions) {
    for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
      TrainOptions options = tiny_options(precision);
      options.model.family = family;
      options.model.dropout = 0.1;
      const auto gpu = make_cuda_ops(0);
      const Trained once = trained(*gpu, options, 4);
      for (const RecomputeChoice recompute : kModes) {
        options.recompute = recompute;
        EXPECT_EQ(trained(*gpu, options, 4), once)
            << plan::name(precision) << ", " << name(family) << ", " << name(recompute);
      }
      options.seed = 2;
      EXPECT_NE(trained(*gpu, options, 4), once);
    }
  }
}

// Experts, norms of heads, heads that turn in part, a window.
// The GPU's losses are the CPU's, and every recompute mode has the same bits there.
void expect_cpus_curve(TrainOptions options, Trained (*train)(Ops&, const TrainOptions&, int)) {
  constexpr int kSteps = 8;
  const auto gpu = make_cuda_ops(0);
  const auto cpu = make_cpu_ops(2);
  const Trained there = train(*gpu, options, kSteps);
  const Trained here = train(*cpu, options, kSteps);
  for (std::size_t i = 0; i < here.losses.size(); ++i) {
    EXPECT_NEAR(there.losses[i], here.losses[i], 1e-3) << "step " << i + 1;
  }
  for (const RecomputeChoice recompute : kModes) {
    options.recompute = recompute;
    EXPECT_EQ(train(*gpu, options, kSteps), there) << name(recompute);
  }
}

TEST_F(CudaTraining, OtherFamiliesFollowTheCpusCurveHoweverMuchIsRecomputed) {
  for (const ModelFamily family :
       {ModelFamily::kMixtral, ModelFamily::kQwen3, ModelFamily::kGptNeox, ModelFamily::kPhi3}) {
    for (const int accumulation : {1, 2}) {
      TrainOptions options = tiny_options();
      options.model.family = family;
      if (family == ModelFamily::kPhi3) options.model.window = 3;
      options.batch.micro = 4 / accumulation;
      options.batch.accumulation = accumulation;
      SCOPED_TRACE(std::string(name(family)) + ", accumulation " + std::to_string(accumulation));
      expect_cpus_curve(options, trained);
    }
  }
}

Trained trained_on_random_tokens(Ops& ops, const TrainOptions& options, int steps) {
  Trainer trainer(options, ops);
  const bench::SyntheticBatches batches(
      formula_shape_of(options), trainer.replica().plan().setup.shape, options.batch.accumulation);
  Trained result;
  for (int i = 0; i < steps; ++i) result.losses.push_back(trainer.step(batches.all()).loss);
  result.master = floats_of(trainer.replica().states().master);
  return result;
}

// Biases by distance in the encoder and in the decoder, with dropout of their probabilities too.
TEST_F(CudaTraining, T5FollowsTheCpusCurveHoweverMuchIsRecomputed) {
  for (const ModelFamily family : {ModelFamily::kT5, ModelFamily::kT5V11}) {
    for (const double dropout : {0.0, 0.1}) {
      TrainOptions options = tiny_options();
      options.model.family = family;
      options.model.dropout = dropout;
      options.model.head_size = 8;
      options.model.relative_buckets = 8;
      options.model.relative_distance = 5;
      options.batch.micro = 2;
      options.batch.accumulation = 2;
      SCOPED_TRACE(std::string(name(family)) + ", dropout " + std::to_string(dropout));
      expect_cpus_curve(options, trained_on_random_tokens);
    }
  }
}

// In sequences that are short for it, and in longer ones.
TEST_F(CudaTraining, LongRopeFollowsTheCpusCurveHoweverMuchIsRecomputed) {
  for (const int original : {4, 8}) {
    TrainOptions options = tiny_options();
    options.model.family = ModelFamily::kPhi3;
    options.model.rope_scaling = RopeScaling::kLongRope;
    options.model.rope.original_positions = original;
    options.model.rope_short_factors = {1, 1.5, 2, 2.5};
    options.model.rope_long_factors = {2, 3, 5, 8};
    options.model.rope_attention_factor = 1.2;
    SCOPED_TRACE(original);
    expect_cpus_curve(options, trained);
  }
}

TEST_F(CudaTraining, ExpertsThatDropRowsFollowTheCpusCurve) {
  for (const double capacity : {0.5, 1.0, 2.0}) {
    TrainOptions options = tiny_options();
    options.model.family = ModelFamily::kMixtral;
    options.expert_capacity = capacity;
    const auto gpu = make_cuda_ops(0);
    const auto cpu = make_cpu_ops(2);
    const Trained there = trained(*gpu, options, 4);
    const Trained here = trained(*cpu, options, 4);
    for (std::size_t i = 0; i < here.losses.size(); ++i) {
      EXPECT_NEAR(there.losses[i], here.losses[i], 1e-3) << capacity << ", step " << i + 1;
    }
    EXPECT_EQ(trained(*gpu, options, 4), there) << capacity;
  }
}

// Micro-batches of a source that overwrites one step's by the next one's.
TEST_F(CudaTraining, UploadsAheadWhatItWouldUploadLater) {
  constexpr int kMicroBatches = 3, kSteps = 6;
  const auto losses = [](bool ahead, bool other_than_said) {
    const auto gpu = make_cuda_ops(0);
    TrainOptions options = tiny_options();
    options.batch.accumulation = kMicroBatches;
    Trainer trainer(options, *gpu);
    std::vector<std::int32_t> tokens(7 * 4 * kMicroBatches);
    std::vector<nn::Batch> batches(kMicroBatches);
    const auto read = [&](int step) -> std::span<const nn::Batch> {
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto word = random_word(5, static_cast<std::uint64_t>(step), i);
        tokens[i] = static_cast<std::int32_t>(word % kVocabulary);
      }
      const Tensor all = tensor_of(std::span(tokens), {4 * kMicroBatches, 7});
      for (int i = 0; i < kMicroBatches; ++i) {
        nn::Batch& batch = batches[static_cast<std::size_t>(i)];
        batch.shape = {.batch = 4, .sequence = 7};
        batch.tokens = batch.targets = all.slice(4 * i, 4);
      }
      return batches;
    };
    std::vector<double> result;
    for (int step = 0; step < kSteps; ++step) {
      const auto next = [&] { return read(other_than_said ? 99 : step + 1); };
      result.push_back(
          trainer.step(read(step), ahead ? Trainer::ReadNext(next) : Trainer::ReadNext()).loss);
    }
    return result;
  };
  const std::vector<double> expected = losses(false, false);
  EXPECT_EQ(losses(true, false), expected);
  EXPECT_EQ(losses(true, true), expected);
}

TEST_F(CudaTraining, UsesThePlannedBytesToTheByte) {
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama, ModelFamily::kBert}) {
    for (const Precision precision : {Precision::kBf16, Precision::kFp8}) {
      for (const RecomputeChoice recompute : kModes) {
        TrainOptions options = fp8_test::options_of(precision, family);
        options.recompute = recompute;
        const auto gpu = make_cuda_ops(0);
        const std::size_t before = memory_in_use(kGpu);
        Trainer trainer(options, *gpu);
        trainer.start();
        EXPECT_EQ(memory_in_use(kGpu) - before, trainer.replica().plan().bytes(Tier::kDevice))
            << plan::name(precision) << ", " << name(family) << ", " << name(recompute);
      }
    }
  }
}

TEST_F(CudaTraining, UsesThePlannedBytesForBiasesAndLongRopeToo) {
  for (const ModelFamily family : {ModelFamily::kT5, ModelFamily::kPhi3}) {
    TrainOptions options = fp8_test::options_of(Precision::kBf16, family);
    if (family == ModelFamily::kPhi3) {
      options.model.rope_scaling = RopeScaling::kLongRope;
      options.model.rope.original_positions = 4;
      options.model.rope_short_factors = {1, 1, 1, 1, 1, 1, 1, 1};
      options.model.rope_long_factors = {2, 2, 2, 2, 3, 3, 3, 3};
    }
    const auto gpu = make_cuda_ops(0);
    const std::size_t before = memory_in_use(kGpu);
    Trainer trainer(options, *gpu);
    trainer.start();
    EXPECT_EQ(memory_in_use(kGpu) - before, trainer.replica().plan().bytes(Tier::kDevice))
        << name(family);
  }
}

// Every operation lies in its step, after the one before it, and blocks around their operations.
TEST_F(CudaTraining, ATraceHasTheTimesOfTheGpu) {
  const auto gpu = make_cuda_ops(0);
  TimedOps timed(*gpu);
  Trainer trainer(tiny_options(), timed);
  parallel::Trace& trace = trainer.strategy().trace();
  trace.keep(2);
  trainer.trace_operations(timed);
  Sequences sequences(4, 7);
  for (int i = 0; i < 3; ++i) trainer.step(sequences.batches(4));
  std::map<std::int64_t, parallel::TraceSpan> steps;
  std::map<std::int64_t, int> forwards, operations;
  std::int64_t last = 0;
  constexpr std::int64_t kClocks = 50'000;  // nanoseconds that two clocks may be apart
  for (const parallel::TraceSpan& span : trace.spans()) {  // by lane: steps come first
    if (span.lane == parallel::TraceLane::kStep) steps[span.step] = span;
    if (span.kind == "forward") ++forwards[span.step];
    if (span.lane != parallel::TraceLane::kOperations) continue;
    ++operations[span.step];
    EXPECT_GE(span.begin, steps.at(span.step).begin - kClocks) << span.name();
    EXPECT_LE(span.end, steps.at(span.step).end + kClocks) << span.name();
    EXPECT_LE(last, span.begin) << span.name();
    EXPECT_LE(span.begin, span.end) << span.name();
    last = span.end;
  }
  EXPECT_EQ(steps.size(), 2u);
  for (const auto& [step, _] : steps) {
    EXPECT_EQ(forwards[step], static_cast<int>(trainer.replica().model().size()));
    EXPECT_GT(operations[step], 2 * forwards[step]);
  }
}

TEST_F(CudaTraining, RecomputationIsChosenByTheMemoryOfTheGpu) {
  const auto gpu = make_cuda_ops(0);
  TrainOptions options = tiny_options();
  options.recompute = RecomputeChoice::kAuto;
  const std::size_t budget = memory_budget(options, kGpu, 1);
  EXPECT_GT(budget, std::size_t{1} << 28);
  EXPECT_LT(budget, free_cuda_memory(0));
  TrainOptions roomy = options, tight = options;
  settle_recompute(roomy, *gpu, budget);
  EXPECT_EQ(roomy.recompute_of_blocks,
            std::vector(roomy.recompute_of_blocks.size(), plan::Recompute::kNone));
  settle_recompute(tight, *gpu, plan_run(roomy, *gpu).bytes() - 1);
  EXPECT_NE(tight.recompute_of_blocks, roomy.recompute_of_blocks);
}

TEST_F(CudaTraining, InFp8LearnsAsBf16Does) {
  const auto gpu = make_cuda_ops(0);
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    SCOPED_TRACE(name(family));
    fp8_test::expect_learns_as_bf16(*gpu, family);
    fp8_test::expect_the_same_bits(*gpu, family);
  }
}

TEST_F(CudaTraining, InFp8ResumesFromACheckpointToTheBit) {
  fp8_test::expect_resumes_to_the_bit(*make_cuda_ops(0));
}

TEST_F(CudaTraining, InFp8FollowsThePlainLoopsOfTheCpu) {
  const auto gpu = make_cuda_ops(0);
  const auto cpu = make_cpu_ops(2);
  const TrainOptions options = fp8_test::options_of(Precision::kFp8, ModelFamily::kGpt2);
  const fp8_test::Trained there = fp8_test::train(*gpu, options, 6);
  const fp8_test::Trained here = fp8_test::train(*cpu, options, 6);
  for (std::size_t i = 0; i < here.losses.size(); ++i) {
    EXPECT_NEAR(there.losses[i], here.losses[i], 0.02 * here.losses[i]) << "step " << i + 1;
  }
}

TEST_F(CudaTraining, AnInfiniteGradientChangesNothing) {
  TrainOptions options = tiny_options(Precision::kF16);
  options.loss_scale.initial = std::numeric_limits<float>::max();
  const auto gpu = make_cuda_ops(0);
  Trainer trainer(options, *gpu);
  Sequences sequences(4, 7);
  const std::vector<float> before = floats_of(trainer.replica().states().master);
  const StepMetrics metrics = trainer.step(sequences.batches(4));
  EXPECT_TRUE(metrics.skipped);
  EXPECT_EQ(floats_of(trainer.replica().states().master), before);
}

}  // namespace
}  // namespace lockstep::train
