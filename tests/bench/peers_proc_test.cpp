// The command with whichever peers this build has.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/file/fd.h"
#include "tests/paths.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPeersOnly = "gloo,gloo-ring,gloo-bcube,openmpi,mpich";

bool have(const std::string& worker) { return fs::exists(in_build("peers/" + worker)); }

std::set<std::string> entries(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// The command under way, its output in our hands.
struct Bench {
  pid_t pid = -1;
  UniqueFd output;

  explicit Bench(const std::vector<std::string>& flags) {
    std::vector<std::string> words{
        in_build("lockstep"), "bench", "collectives", "--peers", "--only", kPeersOnly};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    Pipe pipe = make_pipe();
    pid = ::fork();
    if (pid == 0) {
      ::dup2(pipe.write_end.get(), STDOUT_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    output = std::move(pipe.read_end);
  }

  // Reads until `text` has come, or to the end.
  std::string read_to(const std::string& text) {
    std::string all;
    char bytes[4096];
    while (text.empty() || all.find(text) == std::string::npos) {
      const ssize_t got = ::read(output.get(), bytes, sizeof bytes);
      if (got <= 0) break;
      all.append(bytes, static_cast<std::size_t>(got));
    }
    return all;
  }

  int wait() const {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
};

class Peers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have("gloo_worker") && !have("openmpi_worker") && !have("mpich_worker")) {
      GTEST_SKIP() << "this build has no peers";
    }
    folder_ = fs::path(::testing::TempDir()) / ("bench-peers-" + std::to_string(::getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  nlohmann::json run(std::vector<std::string> flags) {
    const fs::path json = folder_ / "out.json";
    flags.insert(flags.end(), {"--quick", "--json", json.string()});
    Bench bench(flags);
    const std::string output = bench.read_to("");
    EXPECT_EQ(bench.wait(), 0) << output;
    std::ifstream file(json);
    return nlohmann::json::parse(file);
  }

  fs::path folder_;
};

TEST_F(Peers, GiveCorrectResultsForEveryOpAtOddSizesAndRanks) {
  const auto rows = run({"--op", "all", "--ranks", "2,3", "--sizes", "8,1000,70000"});
  std::set<std::string> seen;
  for (const auto& row : rows) {
    EXPECT_EQ(row["correct"], true) << row.dump();
    EXPECT_GT(row["median_us"], 0) << row.dump();
    seen.insert(row["implementation"]);
  }
  EXPECT_EQ(seen.count("gloo"), have("gloo_worker"));
  EXPECT_EQ(seen.count("gloo-ring"), have("gloo_worker"));
  EXPECT_EQ(seen.count("gloo-bcube"), have("gloo_worker"));
  EXPECT_EQ(seen.count("openmpi"), have("openmpi_worker"));
  EXPECT_EQ(seen.count("mpich"), have("mpich_worker"));
}

TEST_F(Peers, GiveCorrectResultsForTheOtherTypesTheyKnow) {
  const auto rows =
      run({"--op", "all_reduce,all_gather", "--dtype", "f64,f16,bf16,i8,i64", "--sizes", "4Ki"});
  for (const auto& row : rows) EXPECT_EQ(row["correct"], true) << row.dump();
}

TEST_F(Peers, LeaveNothingBehindWhenInterrupted) {
  const auto shared_memory = entries("/dev/shm");
  const fs::path temporary = folder_ / "tmp";
  fs::create_directory(temporary);
  ::setenv("TMPDIR", temporary.c_str(), 1);
  Bench bench({"--sizes", "64Ki", "--min-time", "600s"});
  ::unsetenv("TMPDIR");
  bench.read_to("median");  // all jobs are up and the first has got its task
  ::kill(bench.pid, SIGINT);
  EXPECT_EQ(bench.wait(), 130);
  EXPECT_EQ(entries(temporary), std::set<std::string>{});
  EXPECT_EQ(entries("/dev/shm"), shared_memory);
}

}  // namespace
}  // namespace lockstep::bench
