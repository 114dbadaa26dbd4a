// lockstep bench tokenize as people call it, with a peer that only speaks like Hugging Face's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/cli/shell.h"

namespace lockstep::tokenize_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_lockstep;

constexpr const char* kOtherIds = R"(
import json, os, socket
connection = socket.socket(socket.AF_UNIX)
connection.connect("\0" + os.environ["LOCKSTEP_BENCH_SOCKET"])
lines = connection.makefile("rw")
print(json.dumps({"version": "a peer"}), file=lines, flush=True)
for line in lines:
    print(json.dumps({"seconds": 1.0, "tokens": 7, "digest": "00"}), file=lines, flush=True)
)";

class BenchTokenize : public ::testing::Test {
 protected:
  Outcome bench(const std::string& flags) const {
    return run_lockstep("bench tokenize --size 30KB --rounds 2 --json " +
                        (folder_ / "out.json").string() + " " + flags);
  }
  nlohmann::json results() const {
    std::ifstream file(folder_ / "out.json");
    return nlohmann::json::parse(file, nullptr, false);
  }

  ScratchFolder scratch_;
  const fs::path& folder_ = scratch_.path();
};

TEST_F(BenchTokenize, MakesUpWhatIsNotGiven) {
  const Outcome outcome = bench("");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const auto json = results();
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["implementation"], "lockstep");
  EXPECT_EQ(json[0]["samples"].size(), 2u);
  EXPECT_GE(json[0]["bytes"], 30000);
  EXPECT_GT(json[0]["tokens"], 1000);
}

TEST_F(BenchTokenize, OtherIdsOfThePeerAreAFailure) {
  if (testing::shell("python3 -c 1").exit_code != 0) GTEST_SKIP() << "there is no python3";
  std::ofstream(folder_ / "tokenize_hugging_face.py") << kOtherIds;
  const fs::path python = folder_ / "python";
  std::ofstream(python) << "#!/bin/sh\n[ \"$1\" = -c ] || exec python3 \"$@\"\n";
  fs::permissions(python, fs::perms::owner_all);
  const Outcome outcome =
      bench("--peers --python " + python.string() + " --peers-folder " + folder_.string());
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("OTHER IDS"));
  EXPECT_EQ(results()[1]["version"], "a peer");
}

TEST_F(BenchTokenize, GoesOnWithoutThePeer) {
  const Outcome outcome = bench("--peers --python /bin/false");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("/bin/false cannot import tokenizers"));
}

TEST_F(BenchTokenize, AFileThatIsNotThereIsNamed) {
  EXPECT_THAT(bench("--text /nowhere/text").text, HasSubstr("cannot open /nowhere/text"));
  EXPECT_THAT(bench("--tokenizer /nowhere/t.json").text, HasSubstr("/nowhere/t.json"));
}

}  // namespace
}  // namespace lockstep::tokenize_test
