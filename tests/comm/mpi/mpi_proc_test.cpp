// Runs itself under mpirun: the tests called DISABLED_Rank are what every rank then does.
#include "lockstep/comm/mpi/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/launch/make_world.h"
#include "tests/cli/shell.h"
#include "tests/comm/mpi/every_operation.h"
#include "tests/launch/launched.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using std::filesystem::path;
using testing::check_every_operation;
using testing::Floats;
using ::testing::HasSubstr;
using testing::Launched;
using testing::Outcome;

Outcome shell(const std::string& command) { return testing::shell(command + " 2>&1"); }

bool installed(const std::string& command) { return shell("command -v " + command).exit_code == 0; }

std::string self() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

// `mpirun`'s `ranks` processes run DISABLED_Rank.`scenario`. MPI's own leaks are not ours; nor is
// that Open MPI's mpirun at times stays behind, deaf to SIGTERM, when ranks ended without
// MPI_Finalize.
std::string mpirun(int ranks, const std::string& scenario, const std::string& environment = "") {
  return fmt::format(
      "ASAN_OPTIONS=detect_leaks=0 {} timeout -k 5 30 mpirun --allow-run-as-root --oversubscribe "
      "-n {} "
      "{} --gtest_also_run_disabled_tests --gtest_filter=DISABLED_Rank.{}",
      environment, ranks, self(), scenario);
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!installed("mpirun") || !std::filesystem::exists(in_build("liblockstep_mpi.so"))) {
      GTEST_SKIP() << "no MPI here";
    }
  }
};

TEST_F(Mpi, CollectivesAreRightForAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4}) {
    const Outcome outcome = shell(mpirun(ranks, "Collectives"));
    EXPECT_EQ(outcome.exit_code, 0) << ranks << " ranks\n" << outcome.text;
  }
}

TEST_F(Mpi, CollectivesAreRightWithoutChecks) {
  const Outcome outcome = shell(mpirun(4, "Collectives", "LOCKSTEP_COMM_CHECK=0"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
}

// By a communicator of default options, whatever is configured for others.
TEST_F(Mpi, RanksThatDisagreeAreNamed) {
  const Outcome outcome = shell(mpirun(4, "Mismatch", "LOCKSTEP_COMM_CHECK=0"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
}

TEST_F(Mpi, EveryRankTellsItsLastOperationsWhenTheGroupFails) {
  const ScratchFolder folder;
  const Outcome outcome =
      shell(mpirun(3, "Recorded", fmt::format("FINDINGS={}", folder.path().string())));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string told = read_file(folder.path() / fmt::format("rank-{}.txt", rank));
    EXPECT_THAT(told, HasSubstr(fmt::format("rank {} of 3: ", rank)));
    EXPECT_THAT(told, HasSubstr(fmt::format("last operations of rank {}:\n", rank)));
    EXPECT_THAT(told, HasSubstr("  operation 1: all_reduce of 10 f32, sum: took "));
    EXPECT_THAT(told, HasSubstr(fmt::format("  operation 2: all_reduce of {} f32, sum: started ",
                                            rank == 2 ? 12 : 10)));
    EXPECT_THAT(outcome.text, HasSubstr(fmt::format("last operations of rank {}:", rank)));
  }
}

TEST_F(Mpi, AWorldIsCheckedAsConfigured) {
  for (const char* check : {"true", "false"}) {
    const Outcome outcome =
        shell(mpirun(2, "Checked", fmt::format("LOCKSTEP_COMM_CHECK={}", check)));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  }
}

TEST_F(Mpi, AWorldIsTheOneThatMpirunTold) {
  const Outcome outcome = shell(mpirun(2, "World"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
}

TEST_F(Mpi, RanksOfAnotherLauncherAreNotTakenForWorldsOfOne) {
  Launched job({"-n", "2", "--", self(), "--gtest_also_run_disabled_tests",
                "--gtest_filter=DISABLED_Rank.NotByMpirun"},
               {"ASAN_OPTIONS=detect_leaks=0"});
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
}

// The ranks of these leave MPI without MPI_Finalize, and mpirun ends with an error; so they count
// what they found in files, and leave together.
class MpiFailure : public Mpi {
 protected:
  void expect_all_found(int ranks, const std::string& scenario) {
    const ScratchFolder folder;
    const Outcome outcome =
        shell(mpirun(ranks, scenario, fmt::format("FINDINGS={}", folder.path().string())));
    for (int rank = 0; rank < ranks; ++rank) {
      std::string line;
      std::getline(std::ifstream(folder.path() / std::to_string(rank)), line);
      EXPECT_EQ(line, "as expected") << "rank " << rank << "\n" << outcome.text;
    }
  }
};

TEST_F(MpiFailure, ARankThatStaysAwayIsNamedWhenTheDeadlinePasses) {
  expect_all_found(3, "Timeout");
}
TEST_F(MpiFailure, AbortEndsEveryRanksOperations) { expect_all_found(3, "Abort"); }
TEST_F(MpiFailure, AMessageOfAnotherSizeIsAnErrorForAll) { expect_all_found(2, "WrongMessage"); }

TEST_F(Mpi, AnotherMpisMpirunIsRecognised) {
  if (!installed("mpirun.mpich")) GTEST_SKIP() << "no second MPI here";
  const Outcome outcome =
      shell(fmt::format("ASAN_OPTIONS=detect_leaks=0 timeout 60 mpirun.mpich -n 2 {} "
                        "--gtest_also_run_disabled_tests --gtest_filter=DISABLED_Rank.Foreign",
                        self()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
}

TEST(MpiModule, WhereThereIsNoneTheErrorSaysWhatToInstall) {
  setenv("LOCKSTEP_MPI_MODULE", "/nowhere/liblockstep_mpi.so", 1);
  try {
    make_mpi_communicator();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("libopenmpi-dev"));
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/liblockstep_mpi.so"));
  }
  unsetenv("LOCKSTEP_MPI_MODULE");
}

// From here on: what a rank does.

CommOptions mpi_options() {
  CommOptions options = comm_options();
  options.backend = Backend::kMpi;
  return options;
}

TEST(DISABLED_Rank, Collectives) {
  auto comm = make_world(mpi_options());
  EXPECT_EQ(comm->backend(), "mpi");
  check_every_operation(*comm);
  auto part = comm->split(comm->rank() % 2, -comm->rank());
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->size(), (comm->size() + 1 - comm->rank() % 2) / 2);
  check_every_operation(*part);
  EXPECT_EQ(comm->split(comm->rank() == 0 ? 0 : -1, 0) != nullptr, comm->rank() == 0);

  MpiOptions in_small_pieces;
  in_small_pieces.check = mpi_options().check;
  in_small_pieces.largest_piece = 3;
  check_every_operation(*make_mpi_communicator(in_small_pieces));

  const SymmetricBuffer buffer = comm->allocate(10000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
  EXPECT_EQ(buffer.as<float>()[2499], 0.0f);
  EXPECT_THROW(comm->run(all_reduce(Floats{1}).with("ring")), Error);
}

TEST(DISABLED_Rank, Mismatch) {
  auto comm = make_mpi_communicator();
  const bool odd = comm->rank() == 2;
  Floats data(odd ? 12 : 10);
  for (int again = 0; again < 2; ++again) {  // the second time without asking the others
    try {
      comm->all_reduce(data);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
      EXPECT_EQ(error.ranks(), std::vector<int>{2});
      EXPECT_THAT(error.what(), HasSubstr("ranks 0, 1 and 3 called all_reduce of 10 f32, sum"));
      EXPECT_THAT(error.what(), HasSubstr("rank 2 called all_reduce of 12 f32, sum"));
    }
  }
}

// The ranks name different types that MPI moves alike, so that only our check detects it.
TEST(DISABLED_Rank, Recorded) {
  MpiOptions options;
  options.recorder_dir = std::getenv("FINDINGS");
  auto comm = make_mpi_communicator(options);
  Floats data(10);
  comm->all_reduce(data);
  data.resize(comm->rank() == 2 ? 12 : 10);
  EXPECT_THROW(comm->all_reduce(data), Error);
}

TEST(DISABLED_Rank, Checked) {
  const CommOptions options = mpi_options();
  auto comm = make_world(options);
  std::vector<Half> halves(5);
  std::vector<BFloat16> others(5);
  const Data data = comm->rank() == 0 ? Data(halves) : Data(others);
  if (options.check) {
    EXPECT_THROW(comm->broadcast(data, 0), Error);
  } else {
    EXPECT_NO_THROW(comm->broadcast(data, 0));
  }
}

std::string refusal(const World& world) {
  try {
    make_world(world, mpi_options());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error was thrown";
}

TEST(DISABLED_Rank, World) {
  const World told = find_world();
  auto comm = make_world(mpi_options());
  EXPECT_EQ(comm->size(), 2);
  EXPECT_EQ(comm->rank(), told.rank);

  World swapped = told;
  swapped.rank = 1 - told.rank;
  EXPECT_THAT(refusal(swapped),
              HasSubstr(fmt::format("but MPI says that it is rank {} of 2", told.rank)));

  for (const char* variable :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"}) {
    unsetenv(variable);
  }
  EXPECT_EQ(find_world().origin, kNothingSet);
  EXPECT_EQ(make_world(mpi_options())->size(), 2);
}

TEST(DISABLED_Rank, NotByMpirun) {
  const World world = find_world();
  const std::string sentence = refusal(world);
  EXPECT_THAT(sentence,
              HasSubstr(fmt::format(
                  "rank {} of 2 (from RANK and WORLD_SIZE), but MPI says that it is rank 0 of 1",
                  world.rank)));
  EXPECT_THAT(sentence, HasSubstr("mpirun -n 2"));
  EXPECT_THAT(sentence, HasSubstr("comm.backend = \"native\""));
}

// Writes the finding of this rank and waits for those of all others.
void leave_together(const Communicator& comm, bool as_expected) {
  const path folder = std::getenv("FINDINGS");
  const path mine = folder / std::to_string(comm.rank());
  std::ofstream(mine.string() + ".part") << (as_expected ? "as expected\n" : "not as expected\n");
  std::filesystem::rename(mine.string() + ".part", mine);
  for (int rank = 0; rank < comm.size(); ++rank) {
    while (!std::filesystem::exists(folder / std::to_string(rank))) std::this_thread::yield();
  }
}

TEST(DISABLED_Rank, Timeout) {
  MpiOptions options;
  options.deadline = std::chrono::milliseconds(300);
  auto comm = make_mpi_communicator(options);
  bool as_expected = comm->rank() == 1;  // which never comes
  if (comm->rank() != 1) {
    try {
      comm->all_reduce(Floats{1});
    } catch (const Error& error) {
      as_expected = error.code() == ErrorCode::kTimeout && error.ranks() == std::vector<int>{1} &&
                    std::string(error.what()).find("rank 1 did not join") != std::string::npos;
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  leave_together(*comm, as_expected);
}

TEST(DISABLED_Rank, Abort) {
  auto comm = make_mpi_communicator();
  if (comm->rank() == 0) comm->abort("out of patience");
  bool as_expected = false;
  try {
    comm->barrier();
  } catch (const Error& error) {
    as_expected = error.code() == ErrorCode::kAborted && error.ranks() == std::vector<int>{0} &&
                  std::string(error.what()) == "rank 0 aborted: out of patience";
    std::fprintf(stderr, "%s\n", error.what());
  }
  leave_together(*comm, as_expected);
}

TEST(DISABLED_Rank, WrongMessage) {
  auto comm = make_mpi_communicator();
  bool as_expected = false;
  try {
    Floats data(100000);
    if (comm->rank() == 0) {
      comm->send(data, 1);
      comm->barrier();
    } else {
      comm->receive(std::span(data).first(5), 0);
    }
  } catch (const Error& error) {
    as_expected =
        error.code() == ErrorCode::kMismatch &&
        std::string(error.what()) == "rank 0 sends 100000 f32 where rank 1 receives 5 f32";
    std::fprintf(stderr, "%s\n", error.what());
  }
  leave_together(*comm, as_expected);
}

TEST(DISABLED_Rank, Foreign) {
  try {
    make_mpi_communicator();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("another MPI"));
  }
}

}  // namespace
}  // namespace lockstep
