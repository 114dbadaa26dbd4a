#include "lockstep/comm/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/selection.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/launch/make_world.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class CommOptionsTest : public ::testing::Test {
 protected:
  ~CommOptionsTest() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  void variable(const std::string& name, const std::string& value) {
    names_.push_back(name);
    setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::string> names_;
};

TEST_F(CommOptionsTest, DefaultsAreThoseOfTheStruct) {
  const CommOptions options = comm_options();
  EXPECT_EQ(options.timeout, 5min);
  EXPECT_EQ(options.transport, TransportChoice::kAuto);
  EXPECT_EQ(options.backend, Backend::kNative);
  EXPECT_EQ(options.window, 524288u);
  EXPECT_TRUE(options.measure);
  EXPECT_TRUE(options.check);
  for (const Collective collective : kScheduledCollectives) {
    EXPECT_EQ(options.algorithm(collective), "auto");
  }
}

TEST_F(CommOptionsTest, EveryScheduledCollectiveHasItsOwnAlgorithm) {
  for (const Collective collective : kScheduledCollectives) {
    variable(Config::environment_name(fmt::format("comm.algorithm.{}", name(collective))),
             fmt::format("of_{}", name(collective)));
  }
  const CommOptions options = comm_options();
  for (const Collective collective : kScheduledCollectives) {
    EXPECT_EQ(options.algorithm(collective), fmt::format("of_{}", name(collective)));
  }
  EXPECT_EQ(options.algorithm(Collective::kSend), "auto");
}

TEST_F(CommOptionsTest, TheEnvironmentWinsOverTheFile) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("lockstep_options_test_" + std::to_string(getpid()) + ".toml");
  std::ofstream(path) << "[comm]\ntimeout = '9s'\ntransport = 'tcp'\nwindow = '64Ki'\n";
  variable("LOCKSTEP_CONFIG", path);
  variable("LOCKSTEP_COMM_TIMEOUT", "250ms");
  const CommOptions options = comm_options();
  std::filesystem::remove(path);
  EXPECT_EQ(options.timeout, 250ms);
  EXPECT_EQ(options.transport, TransportChoice::kTcp);
  EXPECT_EQ(options.window, 64u << 10);
}

TEST_F(CommOptionsTest, AMisspeltVariableIsAnError) {
  variable("LOCKSTEP_COMM_TIMEOUTS", "1s");
  EXPECT_THROW(comm_options(), Error);
}

TEST_F(CommOptionsTest, AMisspeltAlgorithmIsRefusedBeforeThereAreRanks) {
  variable("LOCKSTEP_COMM_ALGORITHM_ALL_REDUCE", "rng");
  const CommOptions options = comm_options();
  try {
    make_thread_world(2, options);
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("LOCKSTEP_COMM_ALGORITHM_ALL_REDUCE"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean ring?"));
    EXPECT_THAT(error.what(), HasSubstr("auto, fused, naive, server, ring,"));
  }
  World world;
  world.size = 2;  // the other rank does not exist
  EXPECT_THROW(make_world(world, options), Error);
}

TEST_F(CommOptionsTest, AnAlgorithmOfAnotherCollectiveIsRefused) {
  CommOptions options;
  EXPECT_NO_THROW(check_algorithms(options));
  variable("LOCKSTEP_COMM_ALGORITHM_ALL_REDUCE", "ring");
  variable("LOCKSTEP_COMM_ALGORITHM_BROADCAST", "fused");
  EXPECT_NO_THROW(check_algorithms(comm_options()));
  variable("LOCKSTEP_COMM_ALGORITHM_ALL_TO_ALL", "ring");
  EXPECT_THROW(check_algorithms(comm_options()), Error);
}

TEST_F(CommOptionsTest, AGridHasAllRanksOfTheWorld) {
  CommOptions options;
  for (const char* wrong : {"8x", "8,6", "0x6", "-2x3"}) {
    options.grid = wrong;
    EXPECT_THROW(options.grid_extents(), Error) << wrong;
  }
  options.grid = "2x3";
  EXPECT_EQ(options.grid_extents(), (std::vector<int>{2, 3}));
  EXPECT_NO_THROW(make_thread_world(6, options));
  EXPECT_THROW(make_thread_world(4, options), Error);
  // A smaller group has the grid of its nodes.
  run_threads(
      6,
      [](Communicator& world) {
        const auto pair = world.split(world.rank() / 2, world.rank());
        std::vector<std::uint8_t> data(8, 1);
        Call call = all_reduce(data);
        call.algorithm = "torus_2d";
        pair->run(call);
        EXPECT_EQ(data, std::vector<std::uint8_t>(8, 2));
      },
      options);
}

TEST_F(CommOptionsTest, TheCacheFollowsXdg) {
  variable("XDG_CACHE_HOME", "/somewhere");
  EXPECT_EQ(comm_options().cache_dir, "/somewhere/lockstep");
}

TEST_F(CommOptionsTest, EveryKeyIsDocumentedInASentence) {
  CommOptions options;
  Config config;
  bind(config, options);
  const std::string text = config.describe();
  EXPECT_THAT(text, HasSubstr("comm.timeout = \"5min\"  (duration)\n    How long"));
  EXPECT_THAT(text, HasSubstr("comm.transport = \"auto\"  (auto|shm|tcp)"));
  EXPECT_THAT(text, HasSubstr("comm.backend = \"native\"  (native|threads|mpi)"));
}

}  // namespace
}  // namespace lockstep
