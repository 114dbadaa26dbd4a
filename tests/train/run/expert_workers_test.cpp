// Workers of an expert group: what they send for gradients and parameters is what was planned, and
// one whose experts differ from those of the others that hold them is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "lockstep/parallel/traffic.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/run/mesh_groups.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::expert_workers_test {
namespace {

using ::testing::HasSubstr;

TrainOptions options_of(int workers, int expert, int zero, int hosts = 1) {
  TrainOptions options = tiny_options(plan::Precision::kF32);
  options.model.family = ModelFamily::kMixtral;
  options.model.feed_forward = 24;
  options.model.experts = 12;
  options.batch = {.sequence = 7, .sequences = 12, .micro = 1, .workers = workers};
  options.parallel.zero = zero;
  options.parallel.expert = expert;
  options.parallel.machines = hosts;
  options.threads = 1;
  return options;
}

// work(trainer, world, expert group) by each worker.
template <class Work>
void run_expert_workers(const TrainOptions& options, const CommOptions& comm, Work&& work) {
  run_threads(
      options.batch.workers,
      [&](Communicator& world) {
        TrainOptions own = options;
        own.parallel.expert_rank = world.rank() % options.parallel.expert;
        const auto group =
            world.split(world.rank() / options.parallel.expert, own.parallel.expert_rank);
        nn::ExpertAxis axis(*group);
        const auto ops = make_cpu_ops(1);
        const auto strategy =
            parallel::make_strategy({.options = own.parallel,
                                     .optimizer = own.optimizer,
                                     .most_micro_batches = solved(own.batch).accumulation},
                                    &world);
        Trainer trainer(own, *ops, *strategy);
        trainer.set_axes(nullptr, nullptr, nullptr, &axis);
        work(trainer, world, *group);
      },
      comm);
}

struct Spread {
  int workers, expert, hosts;
};

TEST(ExpertWorkers, SendWhatIsPlannedForGradientsAndParameters) {
  for (const Spread& spread : {Spread{2, 2, 1}, Spread{4, 2, 1}, Spread{4, 4, 1}, Spread{6, 3, 1},
                               Spread{4, 2, 2}, Spread{6, 2, 3}}) {
    for (int zero = 0; zero <= 3; ++zero) {
      SCOPED_TRACE(testing::Message() << spread.workers << " workers, expert " << spread.expert
                                      << ", ZeRO " << zero << " on " << spread.hosts);
      const TrainOptions options = options_of(spread.workers, spread.expert, zero, spread.hosts);
      const BatchChoice batch = solved(options.batch);
      CommOptions comm = options.parallel.comm;
      comm.emulated_nodes = spread.hosts;
      comm.cache_dir.clear();
      const auto traffic = parallel::traffic_of(
          options.parallel, {.workers = batch.workers, .most_micro_batches = batch.accumulation},
          plan_run(options, *make_cpu_ops(1)));
      ASSERT_TRUE(traffic);
      run_expert_workers(
          options, comm, [&](Trainer& trainer, Communicator& world, Communicator& group) {
            trainer.start();
            run_steps(trainer, 1, [](const StepMetrics&) {});
            std::uint64_t sent = 0, across = 0;
            std::vector<std::int64_t> rows = {-static_cast<std::int64_t>(group.bytes_sent())};
            run_steps(trainer, 1, [&](const StepMetrics& metrics) {
              for (const parallel::StepCost& cost : metrics.costs) {
                sent += cost.bytes_sent;
                across += cost.bytes_across;
              }
            });
            rows[0] += static_cast<std::int64_t>(group.bytes_sent());
            EXPECT_GT(rows[0], 0);
            world.all_reduce(std::span(rows));
            const LinkBytes planned = traffic->total().links;
            EXPECT_EQ(sent - static_cast<std::uint64_t>(rows[0]), planned.total());
            EXPECT_EQ(across, planned.across);
          });
    }
  }
}

// Nodes of which none has a whole expert group.
TEST(ExpertWorkers, OfGroupsOnSeveralNodesTrafficIsUnknown) {
  const TrainOptions options = options_of(4, 4, 0, 2);
  EXPECT_FALSE(parallel::traffic_of(options.parallel, {.workers = 4, .most_micro_batches = 3},
                                    plan_run(options, *make_cpu_ops(1))));
}

TEST(ExpertWorkers, WhoseParametersDifferAreNamed) {
  for (const int zero : {0, 1, 2}) {
    for (const bool of_experts : {false, true}) {
      SCOPED_TRACE(testing::Message() << "ZeRO " << zero << (of_experts ? ", experts" : ""));
      run_expert_workers(
          options_of(4, 2, zero), {}, [&](Trainer& trainer, Communicator& world, Communicator&) {
            trainer.start();
            run_steps(trainer, 2, [](const StepMetrics&) {});
            const std::string before = trainer.strategy().compare_workers(true);
            EXPECT_EQ(before.size(), 32u);
            nn::Replica& replica = trainer.replica();
            for (const nn::FlatParameter& parameter : replica.flat().all()) {
              if (world.rank() != 3 || replica.flat().has_experts(parameter.block) != of_experts) {
                continue;
              }
              replica.states().parameters.as<float>()[parameter.offset] += 1e-3f;
              break;
            }
            try {
              trainer.strategy().compare_workers(true);
              ADD_FAILURE() << "nobody noticed";
            } catch (const Error& error) {
              EXPECT_EQ(error.code(), ErrorCode::kMismatch);
              EXPECT_THAT(
                  error.what(),
                  HasSubstr(of_experts ? "the experts of rank 3 differ from those of rank 1"
                                       : "the parameters of rank 3 differ from those of rank "
                                         "0"));
              EXPECT_EQ(error.ranks(), std::vector{3});
            }
          });
    }
  }
}

// Experts and moments of every worker are those of one worker, and equal on all that hold them.
TEST(ExpertWorkers, HoldTheStatesOfOneWorker) {
  WholeStates alone;
  TrainOptions one = options_of(1, 1, 0);
  run_workers(one, [&](Trainer& trainer, Communicator*) {
    trainer.start();
    run_steps(trainer, 3, [](const StepMetrics&) {});
    take_states(trainer.replica(), alone);
  });
  for (const int zero : {0, 1, 2, 3}) {
    run_expert_workers(
        options_of(4, 2, zero), {}, [&](Trainer& trainer, Communicator& world, Communicator&) {
          trainer.start();
          run_steps(trainer, 3, [](const StepMetrics&) {});
          WholeStates mine;
          take_states(trainer.replica(), mine);
          std::size_t compared = 0;
          for (const auto& [name, values] : mine) {
            for (std::size_t i = 0; i < values.size(); ++i) {
              if (values[i] == 0) continue;  // of other workers
              ASSERT_NEAR(values[i], alone.at(name)[i], 1e-4)
                  << name << " " << i << " at rank " << world.rank() << ", ZeRO " << zero;
              ++compared;
            }
          }
          EXPECT_GT(compared, 1000u);
        });
  }
}

}  // namespace
}  // namespace lockstep::train::expert_workers_test
