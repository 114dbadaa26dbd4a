// Every model trains to the bits of one worker with its states sharded.
#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/comm/native/threads.h"
#include "lockstep/parallel/single_worker.h"
#include "lockstep/parallel/strategy/sharding_of.h"
#include "lockstep/parallel/traffic.h"
#include "lockstep/parallel/zero/zero.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::parallel::zero_models_test {
namespace {

using nn::Tiny;

constexpr int kSteps = 3;
constexpr int kMicroBatches = 4;  // of a step, all workers together

struct Trained {
  std::vector<double> norms;
  std::vector<float> master;  // without padding, in the order of parameters
  friend bool operator==(const Trained&, const Trained&) = default;
};

// Micro-batches from `first` on.
void train(Tiny tiny, nn::Replica& replica, Strategy& strategy, int first, int count,
           std::vector<double>& norms) {
  optim::OptimizerOptions optimizer;  // with clipping and decay
  optimizer.max_grad_norm = 0.1;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const UpdateRequest request{.optimizer = optimizer, .updates = step, .rate = 1e-2};
    strategy.expect_update(request);
    for (int i = 0; i < count; ++i) {
      nn::TinyBatch batch(nn::tiny_batch_shape(tiny), static_cast<std::uint64_t>(first + i));
      strategy.begin_micro_batch(i, count);
      replica.forward_backward(batch.batch(), {.step = static_cast<std::uint64_t>(step)});
      replica.ops().synchronize();
    }
    norms.push_back(strategy.update(request).gradient_norm);
  }
  strategy.leave();
}

// What this worker holds of the master copy, into where it stands among all parameters.
void take_master(const nn::Replica& replica, std::vector<float>& master) {
  std::vector<std::size_t> firsts;
  std::size_t count = 0;
  for (const nn::FlatParameter& parameter : replica.flat().all()) {
    firsts.push_back(count);
    count += parameter.shape.elements();
  }
  master.resize(count);
  const std::span<const nn::FlatParameter> all = replica.flat().all();
  for (std::size_t block = 0; block < replica.flat().blocks(); ++block) {
    const nn::FlatRange mine = replica.my_range(block);
    if (mine.elements == 0) continue;
    const auto values = replica.mine(block).master.as<const float>();
    for (std::size_t p = 0; p < all.size(); ++p) {
      for (std::size_t i = 0; i < all[p].shape.elements(); ++i) {
        const std::size_t at = all[p].offset + i;
        if (at < mine.first || at >= mine.end()) continue;
        master[firsts[p] + i] = values[at - mine.first];
      }
    }
  }
}

Trained alone(Tiny tiny, const nn::Setup& setup) {
  const auto ops = make_cpu_ops(1);
  nn::Model model = nn::make_tiny(tiny, 0.1);
  nn::MemoryPlan plan = nn::plan_memory(model, setup, *ops, nn::OptimizerState::kMoments);
  nn::Replica replica(std::move(model), std::move(plan), *ops, {});
  replica.initialise(1);
  SingleWorker strategy(Reduction::kTree, kMicroBatches);
  strategy.start(replica);
  replica.set_listener(&strategy);
  Trained trained;
  train(tiny, replica, strategy, 0, kMicroBatches, trained.norms);
  take_master(replica, trained.master);
  return trained;
}

Trained train_sharded(Tiny tiny, const nn::Setup& setup, const ParallelOptions& options,
                      int workers) {
  Trained trained;
  std::mutex mutex;
  run_threads(workers, [&](Communicator& world) {
    const int each = kMicroBatches / workers;
    const auto ops = make_cpu_ops(1);
    nn::Model model = nn::make_tiny(tiny, 0.1);
    Zero strategy(world, options, each);
    const WorkerPosition position{
        .workers = workers, .worker = world.rank(), .most_micro_batches = each};
    nn::MemoryPlan plan = nn::plan_memory(model, setup, *ops, nn::OptimizerState::kMoments,
                                          sharding_of(options, position));
    const std::span<std::byte> symmetric = strategy.symmetric_memory(plan.symmetric_bytes());
    nn::Replica replica(std::move(model), std::move(plan), *ops, {.symmetric = symmetric});
    replica.initialise(1);
    strategy.start(replica);
    replica.set_listener(&strategy);
    std::vector<double> norms;
    train(tiny, replica, strategy, world.rank() * each, each, norms);
    const std::lock_guard lock(mutex);
    trained.norms = norms;
    take_master(replica, trained.master);
  });
  return trained;
}

TEST(ZeroModels, TrainToTheBitsOfOneWorkerAtEveryStage) {
  for (const Tiny tiny : nn::kAllTiny) {
    const nn::Setup setup = nn::tiny_setup(tiny, DType::kF32);
    const Trained expected = alone(tiny, setup);
    for (const int workers : {2, 4}) {
      for (int stage = 1; stage <= 3; ++stage) {
        for (const auto partition : {nn::Partition::kTensor, nn::Partition::kLayer}) {
          ParallelOptions options;
          options.zero = stage;
          options.partition = partition;
          options.reshard_after_forward = stage == 3 && partition != nn::Partition::kTensor;
          options.reduction = Reduction::kTree;
          EXPECT_EQ(train_sharded(tiny, setup, options, workers), expected)
              << nn::name(tiny) << ", " << workers << " workers, stage " << stage;
        }
      }
    }
  }
}

// How often a micro-batch of one has a block's parameters gathered: for forward and for backward.
// The last block's stay in between. A table of tokens is not read in backward, but by the head
// where they are tied, and by a decoder's beginning.
std::size_t times_gathered(Tiny tiny, const std::string& block, bool keeps) {
  const bool own_logits = tiny == Tiny::kOddGpt2 || tiny == Tiny::kLlama ||
                          tiny == Tiny::kMixtral || tiny == Tiny::kQwen3 || tiny == Tiny::kGptNeox;
  if (block == "source") return 3;
  if (block == "embedding") return own_logits && keeps ? 1 : 2;
  if (block == "head" || block == "linear") return keeps ? 1 : 2;
  return 2;
}

std::size_t elements_gathered(Tiny tiny, const nn::MemoryPlan& plan, bool keeps) {
  const nn::Model model = nn::make_tiny(tiny);
  std::size_t elements = 0;
  for (std::size_t block = 0; block < model.size(); ++block) {
    elements +=
        times_gathered(tiny, model.block(block).name(), keeps) * plan.flat.range(block).elements;
  }
  return elements;
}

ParallelOptions third_stage(bool keeps) {
  ParallelOptions options;
  options.zero = 3;
  options.reshard_after_forward = !keeps;
  return options;
}

TEST(ZeroModels, GatherEveryBlockForForwardAndForBackwardWhateverIsDoneAgain) {
  const auto ops = make_cpu_ops(1);
  for (const Tiny tiny : nn::kAllTiny) {
    for (const auto recompute :
         {nn::Recompute::kNone, nn::Recompute::kSelective, nn::Recompute::kFull}) {
      for (const bool keeps : {true, false}) {
        const nn::MemoryPlan plan = nn::plan_memory(
            nn::make_tiny(tiny), nn::tiny_setup(tiny, DType::kBF16, recompute), *ops,
            nn::OptimizerState::kMoments, sharding_of(third_stage(keeps), {.workers = 4}));
        std::size_t elements = 0;
        for (const nn::Gather& gather : plan.gathers) {
          elements += plan.flat.range(gather.unit).elements;
        }
        EXPECT_EQ(elements, elements_gathered(tiny, plan, keeps)) << nn::name(tiny);
      }
    }
  }
}

// Gradients go out once.
TEST(ZeroModels, SendAtStageThreeWhatThePlanSaysAndTheBlocksAddUpTo) {
  for (const Tiny tiny : nn::kAllTiny) {
    for (const int workers : {2, 3, 4}) {
      for (const bool keeps : {true, false}) {
        const ParallelOptions options = third_stage(keeps);
        std::vector<StepCost> costs;
        std::uint64_t planned = 0;
        std::size_t elements = 0;
        run_threads(workers, [&](Communicator& world) {
          const auto ops = make_cpu_ops(1);
          Zero strategy(world, options, 1);
          const WorkerPosition position{
              .workers = workers, .worker = world.rank(), .most_micro_batches = 1};
          nn::MemoryPlan plan =
              nn::plan_memory(nn::make_tiny(tiny), nn::tiny_setup(tiny), *ops,
                              nn::OptimizerState::kMoments, sharding_of(options, position));
          const std::span<std::byte> symmetric = strategy.symmetric_memory(plan.symmetric_bytes());
          nn::Replica replica(nn::make_tiny(tiny), std::move(plan), *ops, {.symmetric = symmetric});
          replica.initialise(1);
          strategy.start(replica);
          replica.set_listener(&strategy);
          strategy.begin_step({});
          std::vector<double> norms;
          train(tiny, replica, strategy, world.rank(), 1, norms);
          const StepSummary summary = strategy.end_step({.losses = {0}, .cost = {}});
          if (world.rank() > 0) return;
          costs = summary.costs;
          planned = traffic_of(options, position, replica.plan())->total().all;
          elements = elements_gathered(tiny, replica.plan(), keeps) + replica.flat().elements();
        });
        const auto n = static_cast<std::size_t>(workers);
        EXPECT_EQ(planned, elements * sizeof(float) * (n - 1) / n) << nn::name(tiny);
        for (const StepCost& cost : costs) EXPECT_EQ(cost.bytes_sent, kSteps * planned);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel::zero_models_test
