// Workers on one GPU, as threads, that compress their gradients: they do what workers on the CPU do
// with the same settings, send as many bytes, and take the memory that is planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/compression/shards.h"
#include "lockstep/parallel/ddp/ddp.h"
#include "lockstep/train/memory/run_plan.h"
#include "tests/tensor/cuda/gpu.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::cuda_compression_test {
namespace {

using lockstep::testing::kGpu;
using parallel::Compression;

class CudaCompression : public lockstep::testing::OnGpu<::testing::Test> {};

constexpr int kSteps = 6;
constexpr double kRatio = 0.1;
constexpr Compression kCodecs[] = {Compression::kInt8, Compression::kInt4,    Compression::kOnebit,
                                   Compression::kTopk, Compression::kRandomk, Compression::kF16,
                                   Compression::kBf16};

TrainOptions options_of(Device device, int workers, Compression compression,
                        plan::Precision precision = plan::Precision::kF32) {
  TrainOptions options = tiny_options(precision);
  options.batch = {.sequence = 7, .sequences = 8, .micro = 1, .workers = workers};
  options.node_place.ranks = workers;
  options.parallel.compression = {.compression = compression, .ratio = kRatio};
  options.parallel.first_bucket_mb = 0.004;  // several buckets
  options.parallel.bucket_mb = 0.01;
  options.parallel.device = device;
  options.share_device = true;
  options.device = device == Device{} ? "cpu" : "cuda";
  options.threads = 1;
  return options;
}

struct Outcome {
  Learned learned;
  std::vector<std::uint64_t> sent;  // by worker, in the last step
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome train(const TrainOptions& options) {
  Outcome outcome;
  std::mutex mutex;
  run_workers(options, [&](Trainer& trainer, Communicator* others) {
    trainer.start();
    Outcome mine;
    run_steps(trainer, kSteps, [&](const StepMetrics& metrics) {
      mine.learned.losses.push_back(metrics.loss);
      mine.learned.norms.push_back(metrics.gradient_norm);
      mine.sent.clear();
      for (const parallel::StepCost& cost : metrics.costs) mine.sent.push_back(cost.bytes_sent);
      trainer.strategy().compare_workers(true);  // throws where replicas differ
    });
    {
      const std::lock_guard lock(mutex);
      if (outcome.sent.empty()) {
        outcome = mine;
        take_states(trainer.replica(), outcome.learned.states);
      }
      EXPECT_EQ(mine.learned.losses, outcome.learned.losses);
      EXPECT_EQ(mine.learned.norms, outcome.learned.norms);
    }
    others->barrier();  // memory of a GPU is freed when all are done
  });
  return outcome;
}

// What each worker sends in a step, by the sizes of payloads.
std::vector<std::uint64_t> predicted(const TrainOptions& options) {
  const auto ops = make_ops(options.parallel.device, 1);
  const nn::MemoryPlan plan = plan_run(options, *ops, 0);
  const auto workers = static_cast<std::size_t>(options.batch.workers);
  const auto codec = parallel::make_codec(options.parallel.compression);
  std::vector<std::uint64_t> sent(workers);
  for (const parallel::Bucket& bucket :
       parallel::Ddp::buckets(options.parallel, {options.batch.workers, 0, 1}, plan)) {
    const parallel::BucketShards shards{bucket.range.elements, workers};
    for (std::size_t w = 0; w < workers; ++w) {
      for (std::size_t other = 0; other < workers; ++other) {
        if (other == w) continue;
        // topk sends the payload of the whole bucket to each; the others a shard, and a sum.
        sent[w] += options.parallel.compression.compression == Compression::kTopk
                       ? codec->bytes(shards.elements)
                       : codec->bytes(shards.size(other)) + codec->bytes(shards.size(w));
      }
    }
  }
  return sent;
}

TEST_F(CudaCompression, LearnsAsOnTheCpuAndSendsTheSameBytes) {
  for (const Compression compression : kCodecs) {
    for (const int workers : {2, 3}) {
      SCOPED_TRACE(std::string(parallel::name(compression)) + ", " + std::to_string(workers));
      const Outcome cpu = train(options_of({}, workers, compression));
      const Outcome gpu = train(options_of(kGpu, workers, compression));
      EXPECT_LT(gpu.learned.losses.back(), gpu.learned.losses.front());
      EXPECT_NEAR(gpu.learned.losses.front(), cpu.learned.losses.front(), 1e-4);
      // An element that lies between two steps may go to either of them.
      for (int step = 0; step < kSteps; ++step) {
        const auto at = static_cast<std::size_t>(step);
        EXPECT_NEAR(gpu.learned.losses[at], cpu.learned.losses[at], 0.01) << "step " << step;
      }
      EXPECT_EQ(gpu.sent, cpu.sent);
      if (compression != Compression::kBf16) {
        EXPECT_EQ(gpu.sent, predicted(options_of(kGpu, workers, compression)));
      }
    }
  }
}

TEST_F(CudaCompression, TheSameSettingsGiveTheSameBits) {
  for (const Compression compression : kCodecs) {
    const TrainOptions options = options_of(kGpu, 2, compression, plan::Precision::kBf16);
    EXPECT_EQ(train(options), train(options)) << parallel::name(compression);
  }
}

TEST_F(CudaCompression, AllocatesWhatIsPlanned) {
  for (const Compression compression : kCodecs) {
    for (const int workers : {2, 5}) {
      const TrainOptions options = options_of(kGpu, workers, compression, plan::Precision::kBf16);
      const std::size_t before = memory_in_use(kGpu);
      std::atomic<std::size_t> planned{0};
      run_workers(options, [&](Trainer& trainer, Communicator* others) {
        trainer.start();
        run_steps(trainer, 2, [](const StepMetrics&) {});
        planned += trainer.replica().plan().bytes(Tier::kDevice);
        others->barrier();
        EXPECT_EQ(memory_in_use(kGpu) - before, planned)
            << parallel::name(compression) << ", " << workers;
        others->barrier();
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::train::cuda_compression_test
