// With bsp, servers give the bits of one worker that does everything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/parallel/server/server_strategy.h"
#include "tests/parallel/server/fixture.h"

namespace lockstep::parallel::server_test {
namespace {

void expect_equal_to_alone(const Training& training, const std::string& what) {
  SCOPED_TRACE(what);
  const Result alone = train_alone(training);
  const std::vector<Result> workers = train_with_servers(training);
  EXPECT_TRUE(workers[0].master == alone.master);
  EXPECT_TRUE(workers[0].first_moment == alone.first_moment);
  EXPECT_TRUE(workers[0].second_moment == alone.second_moment);
  EXPECT_TRUE(workers[0].velocity == alone.velocity);
  for (const Result& worker : workers) {
    EXPECT_TRUE(worker.parameters == alone.parameters);
    EXPECT_EQ(worker.losses, alone.losses);
    EXPECT_EQ(worker.norms, alone.norms);
  }
}

constexpr SliceSchedule kSchedules[] = {SliceSchedule::kFifo, SliceSchedule::kWfbp,
                                        SliceSchedule::kPriority};

TEST(ServerBsp, HasTheBitsOfOneWorkerWithAnyWorkersServersSchedulesAndPlaces) {
  for (const int workers : {1, 2, 4}) {
    Training training;
    training.workers = workers;
    training.servers.slice_mb = 0.003;  // hundreds of elements, an odd number of 32s
    for (const int servers : {1, 2, 3}) {
      for (const SliceSchedule schedule : kSchedules) {
        for (const ServerPlacement place :
             {ServerPlacement::kColocated, ServerPlacement::kDedicated}) {
          if (place == ServerPlacement::kColocated && servers > workers) continue;
          training.servers.servers = servers;
          training.servers.schedule = schedule;
          training.servers.placement = place;
          expect_equal_to_alone(training,
                                fmt::format("{} workers, {}", workers, describe(training.servers)));
        }
      }
    }
  }
}

TEST(ServerBsp, ClipsByTheNormOfAllServersGradients) {
  Training training;
  training.workers = 2;
  training.servers.servers = 2;
  training.optimizer.max_grad_norm = 0.01;  // less than the norm
  for (const SliceSchedule schedule : kSchedules) {
    training.servers.schedule = schedule;
    expect_equal_to_alone(training, describe(training.servers));
  }
  training.servers.placement = ServerPlacement::kDedicated;
  training.servers.servers = 7;  // more than there are slices: some have none
  expect_equal_to_alone(training, describe(training.servers));
  training.optimizer.max_grad_norm = 0;
  expect_equal_to_alone(training, describe(training.servers) + ", no clipping");
}

TEST(ServerBsp, CutsSlicesWhereChunksOfTheNormAre) {
  Training training;
  training.workers = 2;
  training.servers.servers = 2;
  training.servers.slice_mb = 0.01;
  training.optimizer.max_grad_norm = 0.01;
  training.wide = true;
  training.steps = 2;
  expect_equal_to_alone(training, describe(training.servers));
}

TEST(ServerBsp, WorksWithEveryOptimizerAndWithoutBeingToldOfUpdatesBeforehand) {
  Training training;
  training.workers = 2;
  training.expects = false;
  training.servers.slice_mb = 0.004;
  for (const auto& optimizer :
       {optim::OptimizerOptions{.kind = optim::OptimizerKind::kAdam, .max_grad_norm = 0},
        optim::OptimizerOptions{.kind = optim::OptimizerKind::kSgd, .max_grad_norm = 0},
        optim::OptimizerOptions{
            .kind = optim::OptimizerKind::kSgd, .momentum = 0, .max_grad_norm = 0.5}}) {
    training.optimizer = optimizer;
    expect_equal_to_alone(training,
                          fmt::format("{} {}", optim::name(optimizer.kind), optimizer.momentum));
  }
}

TEST(ServerBsp, WorksIn16BitsAndWithAScaledLoss) {
  Training training;
  training.workers = 2;
  training.servers.servers = 2;
  training.dtype = DType::kBF16;
  training.servers.slice_mb = 0.003;
  expect_equal_to_alone(training, "bf16");
  training.dtype = DType::kF16;
  training.loss_scale = 1024;
  expect_equal_to_alone(training, "f16");
}

TEST(ServerBsp, SkipsAnUpdateWithAnInfiniteGradientEverywhere) {
  Training training;
  training.workers = 2;
  training.servers.servers = 2;
  training.dtype = DType::kF16;
  training.loss_scale = 1e30;  // beyond f16
  const Result alone = train_alone(training);
  const std::vector<Result> workers = train_with_servers(training);
  ASSERT_FALSE(std::isfinite(alone.norms.front()));
  for (const Result& worker : workers) {
    EXPECT_TRUE(worker.parameters == alone.parameters);
    for (const double norm : worker.norms) EXPECT_FALSE(std::isfinite(norm));
  }
}

TEST(ServerBsp, AShareMayBeEmpty) {
  for (const SliceSchedule schedule : kSchedules) {
    Training training;
    training.workers = 3;
    training.micro_batches = 2;
    training.servers.servers = 2;
    training.servers.schedule = schedule;
    expect_equal_to_alone(training, describe(training.servers));
  }
}

TEST(ServerBsp, AddsUpAWorkersMicroBatchesByTheTreeWhereAsked) {
  Training training;
  training.workers = 2;
  training.micro_batches = 8;
  training.reduction = Reduction::kTree;
  const std::vector<Result> two = train_with_servers(training);
  training.workers = 1;
  const std::vector<Result> one = train_with_servers(training);
  EXPECT_TRUE(one[0].master == two[0].master);
  EXPECT_TRUE(one[0].first_moment == two[0].first_moment);
}

TEST(ServerBsp, KeepsItsBitsOnAnEmulatedLink) {
  Training training;
  training.workers = 2;
  training.servers.servers = 2;
  training.servers.slice_mb = 0.02;
  training.optimizer.max_grad_norm = 1;
  training.emulate = "400Mbit,100us";
  expect_equal_to_alone(training, "emulated");
}

TEST(ServerBsp, TracesEverySliceThatComesBack) {
  Training training;
  training.workers = 2;
  training.servers.servers = 2;
  training.servers.slice_mb = 0.02;
  training.emulate = "400Mbit,100us";
  const std::size_t slices =
      layout_for(job_of(training), make_trainee(training, *make_cpu_ops(1)).plan()).slices.size();
  std::vector<Strategy*> strategies(2);
  std::vector<std::vector<TraceSpan>> spans(2);
  const auto at = [](int worker) { return static_cast<std::size_t>(worker); };
  const Hooks hooks{.listener =
                        [&](nn::Replica&, Strategy& strategy) {
                          strategy.trace().keep(training.steps);
                          strategies[at(strategy.worker())] = &strategy;
                          return nullptr;
                        },
                    .before_share =
                        [&](int worker, const Share& share) {
                          strategies[at(worker)]->trace().begin_step(share.step);
                        },
                    .after_share =
                        [&](int worker, const Share& share, const StepSummary&) {
                          if (share.step < training.steps) return;
                          spans[at(worker)] = strategies[at(worker)]->trace().spans();
                        }};
  train_with_servers(training, hooks);
  for (const std::vector<TraceSpan>& all : spans) {
    std::size_t exchanged = 0;
    std::int64_t end = 0;
    for (const TraceSpan& span : all) {
      if (span.lane != TraceLane::kCommunication) continue;
      EXPECT_EQ(span.kind, "exchange");
      EXPECT_GE(span.begin, end) << "spans of a lane do not overlap";
      EXPECT_GT(span.bytes, 0u);
      end = span.end;
      ++exchanged;
    }
    EXPECT_GE(exchanged, 2 * slices) << "all of the first steps are back";
    EXPECT_LE(exchanged, 3 * slices);
  }
}

// Slices that are out come back to where the replica was, unless the worker waits for them.
TEST(ServerBsp, AWorkerMayEndWithoutCollecting) {
  Training training;
  training.workers = 2;
  training.collects = false;
  training.emulate = "100Mbit,1ms";
  const std::vector<Result> workers = train_with_servers(training);
  EXPECT_EQ(workers[0].losses, train_alone(training).losses);
}

TEST(ServerBsp, ServesALinearModelOfOneSlice) {
  Training training;
  training.model = nn::Tiny::kLinear;
  training.workers = 3;
  training.micro_batches = 3;
  training.servers.servers = 3;
  expect_equal_to_alone(training, "linear");
}

}  // namespace
}  // namespace lockstep::parallel::server_test
