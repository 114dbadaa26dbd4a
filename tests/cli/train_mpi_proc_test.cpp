// `mpirun lockstep train ... comm.backend=mpi`: MPI starts the ranks and moves their data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/train_ranks.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_lockstep;
using testing::shell;

class TrainOverMpi : public testing::TrainRanks {
 protected:
  void SetUp() override {
    if (shell("command -v mpirun").exit_code != 0 ||
        !std::filesystem::exists(in_build("liblockstep_mpi.so"))) {
      GTEST_SKIP() << "no MPI here";
    }
  }

  // MPI's own leaks are not ours.
  static Outcome mpirun(int ranks, const std::string& arguments) {
    return shell(
        fmt::format("{} ASAN_OPTIONS=detect_leaks=0 timeout -k 5 100 mpirun --allow-run-as-root "
                    "--oversubscribe -n {} {} train comm.backend=mpi {} 2>&1",
                    kToken, ranks, in_build("lockstep"), arguments));
  }
};

// The sum of two numbers does not depend on MPI's order, and servers sum without MPI.
TEST_F(TrainOverMpi, GivesTheBitsOfOneWorker) {
  const std::string steps = "train.steps=6 checkpoint.every=3 train.validate_every=3 ";
  ASSERT_EQ(run_lockstep("train " + tree("one", steps)).exit_code, 0);
  const std::string servers = "parallel.strategy=parameter_server parallel.servers=1 ";
  const struct {
    const char* dir;
    int ranks;
    std::string settings;
  } runs[] = {{"ddp", 2, ""},
              {"zero", 2, "parallel.zero=3"},
              {"colocated", 2, servers + "parallel.server_placement=colocated"},
              {"dedicated", 3, servers + "parallel.server_placement=dedicated"}};
  for (const auto& run : runs) {
    const Outcome outcome = mpirun(run.ranks, tree(run.dir, steps + run.settings));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("2 workers"));
    EXPECT_EQ(losses(run.dir), losses("one")) << run.dir;
    // With zero every worker saves its own shard.
    if (run.dir != std::string("zero")) {
      EXPECT_EQ(states(run.dir, "00000006"), states("one", "00000006")) << run.dir;
    }
  }
}

TEST_F(TrainOverMpi, RefusesForcedAlgorithmsBeforeTheRunHasAFolder) {
  const struct {
    const char* named;
    std::string settings;
  } runs[] = {{"parallel.reduction = \"tree\"", tree("refused", "train.global_batch_size=3")},
              {"parallel.reduction = \"tree\"",
               tree("refused", "train.global_batch_size=3 parallel.zero=2")},
              {"parallel.algorithm = \"ring\"", settings("refused", "parallel.algorithm=ring")}};
  for (const auto& run : runs) {
    const Outcome outcome = mpirun(3, run.settings);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.text, HasSubstr(fmt::format(
                                  "{} is not supported with comm.backend = \"mpi\"", run.named)));
    EXPECT_FALSE(std::filesystem::exists(folder / "refused"));
  }
}

TEST_F(TrainOverMpi, RefusesRanksThatMpiDoesNotStart) {
  const Outcome outcome = run_lockstep("train --ranks 2 comm.backend=mpi " + settings("refused"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("mpirun -n 2 lockstep train"));
}

}  // namespace
}  // namespace lockstep
