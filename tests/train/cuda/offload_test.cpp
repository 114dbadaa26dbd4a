// Training on a GPU with states and activations on the host: what training on the GPU alone does,
// with the memory that is planned.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "tests/tensor/cuda/gpu.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::cuda_offload_test {
namespace {

using lockstep::testing::kGpu;

class CudaOffload : public lockstep::testing::OnGpu<::testing::Test> {};

constexpr int kSteps = 4;

std::vector<nn::Tiers> host_tiers() {
  constexpr Tier kHost = Tier::kHost;
  return {{.optimizer = kHost},
          {.optimizer = kHost, .gradients = kHost},
          {.optimizer = kHost, .parameters = kHost},
          {.activations = kHost},
          {.optimizer = kHost, .gradients = kHost, .parameters = kHost},
          {.optimizer = kHost, .gradients = kHost, .parameters = kHost, .activations = kHost}};
}

// With files and memory that is read in place, each beside the tiers of the host that it replaces.
std::vector<nn::Tiers> file_tiers() {
  constexpr Tier kHost = Tier::kHost, kFile = Tier::kFile;
  return {{.gradients = kFile},
          {.optimizer = kHost, .gradients = kFile},
          {.activations = kFile},
          {.optimizer = kFile, .parameters = kFile},
          {.optimizer = kFile, .gradients = kFile, .parameters = kFile, .activations = kFile}};
}
std::vector<nn::Tiers> tiers_in_place() {
  constexpr Tier kHost = Tier::kHost;
  return {{.parameters = kHost, .in_place = true},
          {.optimizer = kHost, .parameters = kHost, .in_place = true},
          {.optimizer = kHost,
           .gradients = kHost,
           .parameters = kHost,
           .activations = kHost,
           .in_place = true}};
}
nn::Tiers on_host(nn::Tiers tiers) {
  for (Tier nn::Tiers::*const each : {&nn::Tiers::optimizer, &nn::Tiers::gradients,
                                      &nn::Tiers::parameters, &nn::Tiers::activations}) {
    if (tiers.*each == Tier::kFile) tiers.*each = Tier::kHost;
  }
  tiers.in_place = false;
  return tiers;
}

TrainOptions options_of(plan::Precision precision, RecomputeChoice recompute, double clip) {
  TrainOptions options = tiny_options(precision);
  options.batch = {.sequence = 7, .sequences = 8, .micro = 4};
  options.parallel.device = kGpu;
  options.device = "cuda";
  options.model.dropout = 0.1;
  options.recompute = recompute;
  options.optimizer.max_grad_norm = clip;
  return options;
}

// `collects`: after every step. `overlaps`: updates on the host, with the next forward.
Learned train(TrainOptions options, const nn::Tiers& tiers, bool collects = false,
              bool overlaps = true) {
  options.offload.tiers = tiers;
  Learned learned;
  run_workers(options, [&](Trainer& trainer, Communicator*) {
    trainer.set_overlaps_update(overlaps);
    trainer.start();
    run_steps(trainer, kSteps, [&](const StepMetrics& metrics) {
      learned.losses.push_back(metrics.loss);
      learned.norms.push_back(metrics.gradient_norm);
      if (collects) trainer.strategy().collect();
    });
    trainer.strategy().collect();
    take_states(trainer.replica(), learned.states);
  });
  return learned;
}

TEST_F(CudaOffload, DoesWhatTheGpuAloneDoes) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    for (const auto recompute : {RecomputeChoice::kNone, RecomputeChoice::kFull}) {
      for (const double clip : {0.0, 1.0}) {
        const TrainOptions options = options_of(precision, recompute, clip);
        const Learned alone = train(options, {});
        EXPECT_LT(alone.losses.back(), alone.losses.front());
        for (const nn::Tiers& tiers : host_tiers()) {
          SCOPED_TRACE(tiers_text(tiers));
          // The host's update rounds differently from the GPU's.
          const double tolerance = precision == plan::Precision::kF32 ? 1e-5 : 2e-3;
          expect_near(train(options, tiers), alone, tolerance, tolerance * 20);
        }
      }
    }
  }
}

TEST_F(CudaOffload, AnUpdateBesideTheNextForwardHasTheBitsOfOneThatIsAwaited) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    for (const int micro : {2, 8}) {
      TrainOptions options = options_of(precision, RecomputeChoice::kSelective, 0.5);
      options.batch.micro = micro;
      for (const nn::Tiers& tiers : host_tiers()) {
        SCOPED_TRACE(tiers_text(tiers));
        const Learned awaited = train(options, tiers, false, false);
        EXPECT_EQ(train(options, tiers), awaited);
        EXPECT_EQ(train(options, tiers, true), awaited);
      }
    }
  }
}

// Workers on one GPU, as threads.
Learned train_workers(TrainOptions options, const nn::Tiers& tiers, int workers) {
  options.offload.tiers = tiers;
  options.batch.workers = workers;
  options.node_place.ranks = workers;
  options.share_device = true;
  Learned learned;
  std::mutex mutex;
  run_workers(options, [&](Trainer& trainer, Communicator* others) {
    trainer.start();
    Learned mine;
    run_steps(trainer, kSteps, [&](const StepMetrics& metrics) {
      mine.losses.push_back(metrics.loss);
      mine.norms.push_back(metrics.gradient_norm);
    });
    trainer.strategy().collect();
    {
      const std::lock_guard lock(mutex);
      if (learned.losses.empty()) learned.losses = mine.losses;
      EXPECT_EQ(mine.losses, learned.losses);
      learned.norms = mine.norms;
      take_states(trainer.replica(), learned.states);
    }
    if (others != nullptr) others->barrier();  // memory of a GPU is freed when all are done
  });
  return learned;
}

TEST_F(CudaOffload, WorkersHaveTheBitsOfOneWorkerAtEveryStage) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    for (const int micro : {2, 8}) {
      TrainOptions options = options_of(precision, RecomputeChoice::kNone, 0.5);
      options.batch.micro = micro / 2;
      options.parallel.reduction = parallel::Reduction::kTree;
      for (const nn::Tiers& tiers : host_tiers()) {
        options.parallel.zero = 0;
        const Learned alone = train(options, tiers);
        for (int stage = 0; stage <= 3; ++stage) {
          options.parallel.zero = stage;
          for (const auto partition : {nn::Partition::kTensor, nn::Partition::kLayer}) {
            options.parallel.partition = partition;
            EXPECT_EQ(train_workers(options, tiers, 2), alone)
                << tiers_text(tiers) << "stage " << stage << ", " << micro;
          }
        }
      }
    }
  }
}

TEST_F(CudaOffload, FourWorkersWithoutClippingHaveTheBitsOfOne) {
  TrainOptions options = options_of(plan::Precision::kBf16, RecomputeChoice::kSelective, 0);
  options.batch.micro = 2;
  options.parallel.reduction = parallel::Reduction::kTree;
  for (const nn::Tiers& tiers : host_tiers()) {
    options.parallel.zero = 0;
    const Learned alone = train(options, tiers);
    for (int stage = 0; stage <= 3; ++stage) {
      options.parallel.zero = stage;
      EXPECT_EQ(train_workers(options, tiers, 4), alone) << tiers_text(tiers) << stage;
    }
  }
}

TEST_F(CudaOffload, WorkersAllocateWhatIsPlanned) {
  for (const nn::Tiers& tiers : host_tiers()) {
    for (int stage = 0; stage <= 3; ++stage) {
      TrainOptions options = options_of(plan::Precision::kBf16, RecomputeChoice::kSelective, 1);
      options.offload.tiers = tiers;
      options.parallel.zero = stage;
      options.batch.workers = options.node_place.ranks = 2;
      options.share_device = true;
      const std::size_t before = memory_in_use(kGpu);
      std::atomic<std::size_t> planned{0};
      run_workers(options, [&](Trainer& trainer, Communicator* others) {
        trainer.start();
        run_steps(trainer, 2, [](const StepMetrics&) {});
        planned += trainer.replica().plan().bytes(Tier::kDevice);
        others->barrier();
        EXPECT_EQ(memory_in_use(kGpu) - before, planned) << tiers_text(tiers) << stage;
        others->barrier();
      });
    }
  }
}

// The host updates them alike; their chunks come through staging.
TEST_F(CudaOffload, StatesInAFileHaveTheBitsOfTheHost) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    for (const double clip : {0.0, 0.5}) {
      TrainOptions options = options_of(precision, RecomputeChoice::kNone, clip);
      options.parallel.reduction = parallel::Reduction::kTree;
      for (nn::Tiers tiers : host_tiers()) {
        if (tiers.optimizer != Tier::kHost) continue;
        options.parallel.zero = 0;
        const Learned on_host = train(options, tiers);
        tiers.optimizer = Tier::kFile;
        EXPECT_EQ(train(options, tiers), on_host) << tiers_text(tiers) << clip;
        for (const int stage : {0, 2}) {
          options.parallel.zero = stage;
          EXPECT_EQ(train_workers(options, tiers, 2), on_host) << tiers_text(tiers) << stage;
        }
      }
    }
  }
}

// Where the GPU updates it adds up the norm of gradients in a file, in another order than the host.
void expect_same(const Learned& got, const Learned& on_host, const nn::Tiers& tiers) {
  if (tiers.gradients == Tier::kFile && tiers.optimizer == Tier::kDevice) {
    expect_near(got, on_host, 1e-6, 1e-5);
  } else {
    EXPECT_EQ(got, on_host);
  }
}

TEST_F(CudaOffload, FilesHaveTheBitsOfTheHost) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    for (const int micro : {2, 8}) {
      for (const double clip : {0.0, 0.5}) {
        TrainOptions options = options_of(precision, RecomputeChoice::kSelective, clip);
        options.batch.micro = micro;
        for (const nn::Tiers& tiers : file_tiers()) {
          SCOPED_TRACE(tiers_text(tiers));
          expect_same(train(options, tiers), train(options, on_host(tiers)), tiers);
        }
      }
    }
  }
}

TEST_F(CudaOffload, FilesOfWorkersHaveTheBitsOfTheHost) {
  TrainOptions options = options_of(plan::Precision::kBf16, RecomputeChoice::kNone, 0.5);
  options.batch.micro = 2;
  for (const nn::Tiers& tiers : file_tiers()) {
    for (const int stage : {0, 2, 3}) {
      // Without sharded parameters each worker would need a file of all of them.
      if (tiers.parameters == Tier::kFile && stage != 3) continue;
      if (tiers.gradients == Tier::kFile && stage == 0) continue;
      options.parallel.zero = stage;
      SCOPED_TRACE(tiers_text(tiers));
      expect_same(train_workers(options, tiers, 2), train_workers(options, on_host(tiers), 2),
                  tiers);
    }
  }
}

TEST_F(CudaOffload, ParametersReadInPlaceHaveTheBitsOfThoseThatAreCopied) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    for (const auto recompute : {RecomputeChoice::kNone, RecomputeChoice::kFull}) {
      TrainOptions options = options_of(precision, recompute, 0.5);
      options.batch.micro = 2;
      for (const nn::Tiers& tiers : tiers_in_place()) {
        EXPECT_EQ(train(options, tiers), train(options, on_host(tiers))) << tiers_text(tiers);
        EXPECT_EQ(train_workers(options, tiers, 2), train_workers(options, on_host(tiers), 2))
            << tiers_text(tiers);
      }
    }
  }
}

std::vector<nn::Tiers> delayed_tiers() {
  std::vector<nn::Tiers> all;
  for (nn::Tiers tiers : host_tiers()) {
    tiers.delayed_update = true;
    if (tiers.optimizer == Tier::kHost) all.push_back(tiers);
  }
  return all;
}

// An update that is awaited after its step is not late.
TEST_F(CudaOffload, ADelayedUpdateIsTheUpdateAStepLater) {
  TrainOptions options = options_of(plan::Precision::kBf16, RecomputeChoice::kNone, 1);
  options.model.dropout = 0;
  for (const nn::Tiers& tiers : delayed_tiers()) {
    nn::Tiers prompt = tiers;
    prompt.delayed_update = false;
    EXPECT_EQ(train(options, tiers, true), train(options, prompt)) << tiers_text(tiers);
    const Learned late = train(options, tiers);
    EXPECT_EQ(late.losses[0], late.losses[1]);
    EXPECT_LT(late.losses[2], late.losses[0]);
    EXPECT_EQ(train(options, tiers), late);
  }
}

TEST_F(CudaOffload, TheSameSettingsGiveTheSameBits) {
  for (const nn::Tiers& tiers : host_tiers()) {
    const TrainOptions options = options_of(plan::Precision::kBf16, RecomputeChoice::kSelective, 1);
    EXPECT_EQ(train(options, tiers), train(options, tiers)) << tiers_text(tiers);
  }
}

TEST_F(CudaOffload, AllocatesWhatIsPlanned) {
  std::vector<nn::Tiers> all = host_tiers();
  for (const auto& more : {delayed_tiers(), file_tiers(), tiers_in_place()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  for (const nn::Tiers& tiers : all) {
    TrainOptions options = options_of(plan::Precision::kBf16, RecomputeChoice::kSelective, 1);
    options.offload.tiers = tiers;
    const std::size_t on_gpu = memory_in_use(kGpu);
    const std::size_t on_host = memory_in_use({});
    run_workers(options, [&](Trainer& trainer, Communicator*) {
      trainer.start();
      run_steps(trainer, 2, [](const StepMetrics&) {});
      const nn::MemoryPlan& plan = trainer.replica().plan();
      EXPECT_EQ(memory_in_use(kGpu) - on_gpu, plan.bytes(Tier::kDevice)) << tiers_text(tiers);
      const std::size_t on_host_now = memory_in_use({}) - on_host;
      // A save allocates what it reads files of states with.
      if (trainer.replica().state_file() != nullptr) {
        EXPECT_LE(on_host_now, plan.bytes(Tier::kHost)) << tiers_text(tiers);
      } else {
        EXPECT_EQ(on_host_now, plan.bytes(Tier::kHost)) << tiers_text(tiers);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::train::cuda_offload_test
