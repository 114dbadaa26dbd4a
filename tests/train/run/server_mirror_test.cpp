// Slices of parameter servers in the memory of other workers: what is where, how much memory it
// takes, and how a run continues with what is left. And shards that differ from their mirrors, or
// that are computed wrongly.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/run/mirrored_states.h"
#include "lockstep/train/run/shard_mirror.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kMirroringWorkers = 4;

TrainOptions served_options(int servers) {
  TrainOptions options;
  options.model = {.family = ModelFamily::kGpt2,
                   .layers = 2,
                   .hidden = 32,
                   .heads = 2,
                   .vocabulary = 31,
                   .positions = 8};
  options.batch = {.sequence = 8, .sequences = 12, .micro = 1, .workers = kMirroringWorkers};
  options.precision = plan::Precision::kBf16;
  options.parallel.strategy = parallel::StrategyKind::kParameterServer;
  options.parallel.server.servers = servers;
  options.survive.mirror = true;
  return options;
}

TrainOptions sharded_options(int zero) {
  TrainOptions options = served_options(1);
  options.parallel.strategy = parallel::StrategyKind::kDdp;
  options.parallel.zero = zero;
  return options;
}

std::vector<std::byte> packed(MirroredStates& states, int worker) {
  std::vector<std::byte> bytes(packed_bytes(states.elements_of(worker)));
  pack(states.mine(), bytes);
  return bytes;
}

// Steps with a mirror.
void train_mirrored(Trainer& trainer, ShardMirror& mirror, int steps) {
  trainer.set_before_update([&] { mirror.wait(); });
  run_steps(trainer, steps, [&](const StepMetrics&) { mirror.begin(*trainer.last_settled()); });
  mirror.wait();
}

// Shares of workers that do not wait for each other, until that step.
void run_shares(Trainer& trainer, std::int64_t last_step) {
  const BatchChoice batch = solved(trainer.options().batch);
  Sequences sequences(batch.sequences, batch.sequence);
  const auto batches = sequences.batches(batch.micro);
  while (const auto share =
             trainer.strategy().next(step_plan(batch), trainer.state().steps, last_step)) {
    trainer.step(std::span(batches).subspan(static_cast<std::size_t>(share->first_micro_batch),
                                            static_cast<std::size_t>(share->micro_batches)),
                 *share);
  }
}

std::vector<float> masters(const nn::Replica& replica) {
  const auto values = replica.states().master.as<float>();
  return {values.begin(), values.end()};
}

class ServerMirror : public ::testing::TestWithParam<int> {};

TEST_P(ServerMirror, HoldsTheWardsSlicesAfterEveryStep) {
  for (const double clip : {0.0, 1.0}) {
    std::mutex mutex;
    std::vector<std::vector<std::byte>> own(kMirroringWorkers);
    std::vector<KeptShards> kept(kMirroringWorkers);
    TrainOptions options = served_options(GetParam());
    options.optimizer.max_grad_norm = clip;
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      trainer.start();
      ShardMirror mirror(*others, trainer);
      train_mirrored(trainer, mirror, 5);
      const std::lock_guard lock(mutex);
      const auto me = static_cast<std::size_t>(others->rank());
      own[me] = packed(*mirrored_states(trainer), others->rank());
      kept[me] = mirror.take(trainer.last_settled());
    });
    for (int worker = 0; worker < kMirroringWorkers; ++worker) {
      const KeptShards& one = kept[static_cast<std::size_t>(worker)];
      EXPECT_EQ(one.worker, worker < GetParam() ? worker : -1);
      const int ward = (worker + kMirroringWorkers - 1) % kMirroringWorkers;
      EXPECT_EQ(one.ward, ward < GetParam() ? ward : -1);
      EXPECT_EQ(own[static_cast<std::size_t>(worker)].empty(), worker >= GetParam());
      ASSERT_EQ(one.mirrored.size(), 2u);
      EXPECT_EQ(one.mirrored[0].state.steps + one.mirrored[1].state.steps, 9);
      const Buffer& newest = one.mirrored[one.mirrored[0].state.steps == 5 ? 0 : 1].bytes;
      EXPECT_EQ(std::vector(newest.data(), newest.data() + newest.bytes()),
                own[static_cast<std::size_t>(ward)]);
    }
  }
}

// Those of any worker that is lost come from its mirror; worker 0 gets all.
TEST_P(ServerMirror, GivesTheStatesOfAWorkerThatIsLost) {
  for (int lost = 0; lost < kMirroringWorkers; ++lost) {
    std::mutex mutex;
    WholeStates before;
    WholeStates after;
    std::vector<std::optional<KeptShards>> kept(kMirroringWorkers);
    const TrainOptions options = served_options(GetParam());
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      trainer.start();
      ShardMirror mirror(*others, trainer);
      train_mirrored(trainer, mirror, 3);
      trainer.strategy().collect();
      const std::lock_guard lock(mutex);
      if (others->rank() == 0) take_states(trainer.replica(), before);
      kept[static_cast<std::size_t>(others->rank())] = mirror.take(trainer.last_settled());
    });
    kept[static_cast<std::size_t>(lost)].reset();
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      const RunGroup group(others);
      const auto& mine = kept[static_cast<std::size_t>(group.rank())];
      const CommonStepSearch search = find_common_step(mine, group);
      ASSERT_TRUE(search.found) << search.lost;
      EXPECT_EQ(search.found->state.steps, 3);
      const std::string text = describe_slices(*search.found);
      const std::string from = fmt::format(", those of server {} from their mirror on rank {}",
                                           lost, (lost + 1) % kMirroringWorkers);
      EXPECT_EQ(text, "the slices in memory" + (lost < GetParam() ? from : ""));
      nn::Replica& replica = trainer.replica();
      restore_slices(*search.found, mine, group, served_slices_of(options, replica.plan()),
                     replica);
      trainer.set_state(search.found->state);
      trainer.start();
      trainer.strategy().collect();  // what the servers have
      if (group.leads()) take_states(replica, after);
    });
    EXPECT_FALSE(before.empty());
    EXPECT_EQ(before, after) << lost;
  }
}

TEST_P(ServerMirror, TakesTheMemoryThatThePlanHas) {
  for (const bool adam : {true, false}) {
    TrainOptions options = served_options(GetParam());
    options.optimizer.kind = adam ? optim::OptimizerKind::kAdamW : optim::OptimizerKind::kSgd;
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      trainer.start();
      const ShardMirror mirror(*others, trainer);
      std::size_t planned = 0;
      for (const Request& request : trainer.replica().plan().outside) {
        if (request.group == "mirror") planned += request.bytes;
      }
      EXPECT_EQ(mirror.bytes(), planned);
      others->barrier();
    });
  }
}

// Of workers that do not wait for each other. Servers that live keep their slices as they are;
// those of a lost one are of some step before.
TEST_P(ServerMirror, OfWorkersThatDoNotWaitGivesAllSlices) {
  if (GetParam() == 1) {
    TrainOptions options = served_options(1);
    options.parallel.server.consistency = parallel::Consistency::kAsp;
    EXPECT_THAT(cannot_mirror(options, Device{}), HasSubstr("parallel.servers = 1"));
    return;
  }
  for (int lost = 0; lost < kMirroringWorkers; ++lost) {
    std::mutex mutex;
    std::vector<float> before;
    std::vector<std::optional<KeptShards>> kept(kMirroringWorkers);
    TrainOptions options = served_options(GetParam());
    options.parallel.server.consistency = parallel::Consistency::kAsp;
    options.optimizer.max_grad_norm = 0;
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      trainer.start();
      const auto mirror = make_mirror(*others, trainer);
      std::size_t planned = 0;
      for (const Request& request : trainer.replica().plan().outside) {
        if (request.group == "mirror") planned += request.bytes;
      }
      EXPECT_EQ(mirror->bytes(), planned);
      run_shares(trainer, 4);
      mirror->finish();
      if (others->rank() != 0) trainer.strategy().collect();  // waits until its last push is back
      others->barrier();
      if (others->rank() == 0) trainer.strategy().collect();
      others->barrier();
      const std::lock_guard lock(mutex);
      if (others->rank() == 0) before = masters(trainer.replica());
      kept[static_cast<std::size_t>(others->rank())] = mirror->take(trainer.last_settled());
    });
    kept[static_cast<std::size_t>(lost)].reset();
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      const RunGroup group(others);
      auto& mine = kept[static_cast<std::size_t>(group.rank())];
      align_steps(mine, group);
      const CommonStepSearch search = find_common_step(mine, group);
      ASSERT_TRUE(search.found) << search.lost;
      EXPECT_GE(search.found->state.steps, 1);
      nn::Replica& replica = trainer.replica();
      const auto slices = served_slices_of(options, replica.plan());
      restore_slices(*search.found, mine, group, slices, replica);
      trainer.set_state(search.found->state);
      trainer.start();
      if (!group.leads()) return;
      const std::vector<float> after = masters(replica);
      for (const parallel::ServedSlice& slice : slices) {
        const auto of = [&](const std::vector<float>& all) {
          return std::vector(all.begin() + static_cast<std::ptrdiff_t>(slice.range.first),
                             all.begin() + static_cast<std::ptrdiff_t>(slice.range.end()));
        };
        if (slice.server != lost) {
          EXPECT_EQ(of(after), of(before)) << lost;
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Servers, ServerMirror, ::testing::Values(1, 2, 4));

TEST(ShardMirror, FindsDamagedMemoryInAShardOrItsMirror) {
  for (const TrainOptions& options : {served_options(2), sharded_options(1), sharded_options(3)}) {
    const auto run = [&](bool damaged) {
      run_workers(options, [&](Trainer& trainer, Communicator* others) {
        trainer.start();
        ShardMirror mirror(*others, trainer);
        train_mirrored(trainer, mirror, 2);
        mirror.compare();
        train_mirrored(trainer, mirror, 1);
        if (damaged && others->rank() == 1) {
          // The lowest bit of a moment.
          const Tensor moment = mirrored_states(trainer)->mine()[1];
          moment.data()[4] ^= std::byte{1};
        }
        try {
          mirror.compare();
          EXPECT_FALSE(damaged);
        } catch (const Error& error) {
          EXPECT_TRUE(damaged);
          EXPECT_EQ(error.code(), ErrorCode::kMismatch);
          EXPECT_THAT(error.what(),
                      HasSubstr("the shard of rank 1 differs from its mirror on rank 2"));
          EXPECT_EQ(error.ranks(), (std::vector{1, 2}));
        }
        others->barrier();
      });
    };
    run(false);
    run(true);
  }
}

// Of all kinds of optimizers, types and stages, every block.
TEST(RecomputedUpdate, HasTheBitsOfTheWards) {
  for (const int zero : {1, 2, 3}) {
    for (const plan::Precision precision :
         {plan::Precision::kF32, plan::Precision::kBf16, plan::Precision::kF16}) {
      for (const double momentum : {-1.0, 0.0, 0.9}) {  // negative: Adam
        TrainOptions options = sharded_options(zero);
        options.precision = precision;
        options.optimizer.max_grad_norm = zero == 2 ? 0 : 1;
        if (momentum >= 0) {
          options.optimizer.kind = optim::OptimizerKind::kSgd;
          options.optimizer.momentum = momentum;
        }
        run_workers(options, [&](Trainer& trainer, Communicator* others) {
          trainer.start();
          ShardMirror mirror(*others, trainer);
          mirror.begin(*trainer.last_settled());
          for (int step = 0; step < 3; ++step) {
            train_mirrored(trainer, mirror, 1);
            for (std::size_t i = 0; i < trainer.replica().flat().blocks(); ++i) mirror.compare();
          }
        });
      }
    }
  }
}

// The mirror has the same wrong bits as the worker that has computed them.
TEST(RecomputedUpdate, FindsAWrongUpdate) {
  for (const int zero : {1, 3}) {
    run_workers(sharded_options(zero), [&](Trainer& trainer, Communicator* others) {
      trainer.start();
      ShardMirror mirror(*others, trainer);
      train_mirrored(trainer, mirror, 2);
      trainer.set_before_update([&] { mirror.wait(); });
      run_steps(trainer, 1, [&](const StepMetrics&) {
        const Tensor moment = mirrored_states(trainer)->mine()[1];
        if (others->rank() == 1) moment.data()[4] ^= std::byte{1};
        mirror.begin(*trainer.last_settled());
      });
      std::string what;
      for (std::size_t i = 0; i < trainer.replica().flat().blocks() && what.empty(); ++i) {
        try {
          mirror.compare();
        } catch (const Error& error) {
          what = error.what();
          EXPECT_EQ(error.code(), ErrorCode::kMismatch);
          EXPECT_EQ(error.ranks(), (std::vector{1, 2}));
        }
      }
      EXPECT_THAT(what, AllOf(HasSubstr("rank 2 has computed the update of "),
                              HasSubstr(" by rank 1 again, and got other bits")));
      others->barrier();
    });
  }
}

}  // namespace
}  // namespace lockstep::train
