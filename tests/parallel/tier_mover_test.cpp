// Every model computes the same with everything it can do without on the host, or in files.
#include "lockstep/parallel/offload/tier_mover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/parallel/single_worker.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::parallel::tier_mover_test {
namespace {

using nn::Tiny;

constexpr nn::Tiers kAllOnHost{.optimizer = Tier::kHost,
                               .gradients = Tier::kHost,
                               .parameters = Tier::kHost,
                               .activations = Tier::kHost};
constexpr nn::Tiers kAllInFiles{.optimizer = Tier::kFile,
                                .gradients = Tier::kFile,
                                .parameters = Tier::kFile,
                                .activations = Tier::kFile};

struct Outcome {
  std::vector<double> losses;
  std::vector<float> master;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A replica and the strategy that moves its parts.
struct Worker {
  Worker(Tiny tiny, const nn::Setup& setup, const nn::Tiers& tiers)
      : plan(nn::plan_memory(nn::make_tiny(tiny, 0.1), setup, *ops, nn::OptimizerState::kMoments,
                             {}, tiers)),
        device("device", plan.bytes(Tier::kDevice)),
        replica(nn::make_tiny(tiny, 0.1), plan, *ops,
                {.symmetric = {},
                 .device = &device,
                 .host = &host,
                 .file = {.folder = scratch.path(), .what = {}}}) {
    std::size_t staging = 0;
    for (const Request& request : plan.host_outside) staging += padded_bytes(request);
    EXPECT_EQ(device.in_use(), device.limit());
    EXPECT_EQ(host.in_use() + staging, plan.bytes(Tier::kHost));
    replica.initialise(1);
    alone.start(replica);
    replica.set_listener(&alone);
  }
  ~Worker() { alone.leave(); }

  ScratchFolder scratch;
  std::unique_ptr<Ops> ops = make_cpu_ops(1);
  nn::MemoryPlan plan;
  MemoryBudget device;
  MemoryBudget host{"host"};
  nn::Replica replica;
  SingleWorker alone;
};

Outcome train(Tiny tiny, const nn::Setup& setup, const nn::Tiers& tiers, double clip) {
  Worker worker(tiny, setup, tiers);
  Outcome outcome;
  optim::OptimizerOptions optimizer;
  optimizer.max_grad_norm = clip;
  for (std::int64_t step = 0; step < 2; ++step) {
    const UpdateRequest request{.optimizer = optimizer, .updates = step, .rate = 1e-2};
    worker.alone.expect_update(request);
    for (std::int64_t i = 0; i < 2; ++i) {
      nn::TinyBatch batch(nn::tiny_batch_shape(tiny), static_cast<std::uint64_t>(i));
      worker.alone.begin_micro_batch(i, 2);
      const Tensor losses = worker.replica.forward_backward(
          batch.batch(), {.step = static_cast<std::uint64_t>(step)});
      worker.ops->synchronize();
      outcome.losses.push_back(nn::sum_of(losses));
    }
    outcome.losses.push_back(worker.alone.update(request).gradient_norm);
  }
  worker.alone.leave();
  nn::StateStream stream(worker.replica, nn::StateAccess::kRead, &nn::States::master);
  while (stream.next()) {
    const auto master = stream.states().master.as<const float>();
    outcome.master.insert(outcome.master.end(), master.begin(), master.end());
  }
  return outcome;
}

TEST(TierMover, EveryModelTrainsToTheSameBitsFromTheHostAndFromFiles) {
  for (const Tiny tiny : nn::kAllTiny) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const nn::Recompute recompute : plan::kAllRecompute) {
        for (const double clip : {0.0, 0.1}) {
          const nn::Setup setup = nn::tiny_setup(tiny, dtype, recompute);
          const Outcome without = train(tiny, setup, {}, clip);
          for (const nn::Tiers& tiers : {kAllOnHost, kAllInFiles}) {
            EXPECT_EQ(train(tiny, setup, tiers, clip), without)
                << nn::name(tiny) << " " << name(dtype) << " " << plan::name(recompute) << " "
                << name(tiers.activations);
          }
        }
      }
    }
  }
}

// Between forward and backward its file is cut short.
class CutShort : public nn::BlockListener {
 public:
  CutShort(Worker& worker) : worker_(worker) {}
  void before_forward(std::size_t block) override { worker_.alone.before_forward(block); }
  void after_forward(std::size_t block) override { worker_.alone.after_forward(block); }
  void before_backward(std::size_t block) override {
    if (block + 1 == worker_.replica.model().size()) {
      ASSERT_EQ(::ftruncate(worker_.replica.activation_file()->file().descriptor(), 0), 0);
    }
    worker_.alone.before_backward(block);
  }
  void after_backward(std::size_t block) override { worker_.alone.after_backward(block); }

 private:
  Worker& worker_;
};

TEST(TierMover, ActivationsThatDoNotComeBackEndTheBackwardThatWantsThem) {
  for (const bool overlaps : {false, true}) {
    Worker worker(Tiny::kGpt2, nn::tiny_setup(Tiny::kGpt2, DType::kF32, nn::Recompute::kNone),
                  {.activations = Tier::kFile, .overlaps = overlaps});
    ASSERT_NE(worker.replica.activation_file(), nullptr);
    CutShort listener(worker);
    worker.replica.set_listener(&listener);
    nn::TinyBatch batch(nn::tiny_batch_shape(Tiny::kGpt2), 1);
    worker.alone.begin_micro_batch(0, 1);
    try {
      worker.replica.forward_backward(batch.batch(), {.step = 1});
      FAIL() << "backward computed with what it had not";
    } catch (const Error& error) {
      EXPECT_THAT(
          error.what(),
          ::testing::AllOf(::testing::HasSubstr("of the file of what blocks keep for backward in "),
                           ::testing::HasSubstr("last checkpoint")));
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel::tier_mover_test
