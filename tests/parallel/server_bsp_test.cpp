// With bsp, servers give the bits of one worker that does everything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parallel/server_fixture.h"

namespace lockstep::parallel::server_test {
namespace {

void expect_equal_to_alone(const Training& training, const std::string& what) {
  SCOPED_TRACE(what);
  const Result alone = train_alone(training);
  const std::vector<Result> workers = train_with_servers(training);
  EXPECT_TRUE(workers[0].master == alone.master);
  EXPECT_TRUE(workers[0].moment == alone.moment);
  EXPECT_TRUE(workers[0].variance == alone.variance);
  EXPECT_TRUE(workers[0].velocity == alone.velocity);
  for (const Result& worker : workers) {
    EXPECT_TRUE(worker.parameters == alone.parameters);
    EXPECT_EQ(worker.losses, alone.losses);
    EXPECT_EQ(worker.norms, alone.norms);
  }
}

constexpr PieceSchedule kSchedules[] = {PieceSchedule::kFifo, PieceSchedule::kWfbp,
                                        PieceSchedule::kPriority};

TEST(ServerBsp, HasTheBitsOfOneWorkerWithAnyWorkersServersSchedulesAndPlaces) {
  for (const int workers : {1, 2, 4}) {
    Training training;
    training.workers = workers;
    training.servers.piece_mb = 0.003;  // hundreds of elements, an odd number of 32s
    for (const int servers : {1, 2, 3}) {
      for (const PieceSchedule schedule : kSchedules) {
        for (const ServerPlace place : {ServerPlace::kBeside, ServerPlace::kOwn}) {
          if (place == ServerPlace::kBeside && servers > workers) continue;
          training.servers.servers = servers;
          training.servers.schedule = schedule;
          training.servers.place = place;
          expect_equal_to_alone(training,
                                fmt::format("{} workers, {}", workers, describe(training.servers)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel::server_test
