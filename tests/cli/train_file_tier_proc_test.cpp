// `lockstep train` with states and activations in files: killed, on a disk that is too small, on
// one that breaks or fills up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/train_command.h"

namespace lockstep::train_file_tier_proc_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
namespace fs = std::filesystem;

class TrainFileTier : public testing::TrainCommand {
 protected:
  void SetUp() override {
    testing::TrainCommand::SetUp();
    fs::create_directory(folder / "disk");
  }
  std::string filed(const std::string& dir, const std::string& more) const {
    return settings(dir, "offload.optimizer=file offload.parameters=file offload.folder=" +
                             (folder / "disk").string() + " " + more);
  }
  std::string kept_in_file(const std::string& dir, const std::string& more) const {
    return settings(
        dir, "offload.activations=file offload.folder=" + (folder / "disk").string() + " " + more);
  }
  // Checks that a run that resumed after a disk failure equals an uninterrupted one.
  void expect_goes_on(const std::string& arguments, const std::string& schedule) {
    const std::string steps = "train.steps=" + std::to_string(losses("run").size() + 2) + schedule;
    const Outcome rest = run_lockstep("train " + arguments + steps);
    EXPECT_EQ(rest.exit_code, 0) << rest.text;
    const Outcome plain = run_lockstep("train " + settings("plain", steps));
    EXPECT_EQ(plain.exit_code, 0) << plain.text;
    EXPECT_EQ(losses("run"), losses("plain"));
  }
  // A file without a name that a process has in the folder; empty: none.
  fs::path nameless_file(pid_t process) const {
    std::error_code none;
    for (fs::directory_iterator at(fs::path("/proc") / std::to_string(process) / "fd", none);
         !none && at != fs::directory_iterator(); at.increment(none)) {
      std::error_code gone;
      const std::string target = fs::read_symlink(at->path(), gone).string();
      if (!gone && target.starts_with((folder / "disk").string())) return at->path();
    }
    return {};
  }
};

TEST_F(TrainFileTier, LeavesNothingOfItsFileWhenItIsKilled) {
  const pid_t child =
      start(filed("killed", "train.steps=1000000 offload.gradients=file offload.activations=file"));
  wait_for_step("killed", "\"step\":3");
  EXPECT_FALSE(nameless_file(child).empty()) << "it has no file";
  EXPECT_TRUE(fs::is_empty(folder / "disk")) << "its file has a name";
  ::kill(child, SIGKILL);
  wait_for(child);
  EXPECT_TRUE(fs::is_empty(folder / "disk"));
}

TEST_F(TrainFileTier, StopsWhenItsDiskFailsAndGoesOnFromTheLastCheckpoint) {
  const std::string schedule = " schedule.decay_steps=1000 checkpoint.every=2 ";
  const pid_t child = start(filed("run", "train.steps=1000000" + schedule));
  wait_for_step("run", "\"step\":5");
  const fs::path file = nameless_file(child);
  ASSERT_FALSE(file.empty());
  ASSERT_EQ(::truncate(file.c_str(), 0), 0);
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 1);
  // A write that follows makes the file long again, with nothing where other blocks were.
  EXPECT_THAT(text_of(folder / "log.txt"),
              AllOf(HasSubstr("of the file of the optimizer's states in "),
                    AnyOf(HasSubstr("the file ends before it"),
                          HasSubstr("what was read differs from what was written")),
                    HasSubstr("last checkpoint")));

  expect_goes_on(filed("run", ""), schedule);
}

// What blocks keep is written again in every step: the file has to be cut between a write and its
// read.
TEST_F(TrainFileTier, StopsWhenTheDiskOfActivationsFails) {
  const std::string schedule = " schedule.decay_steps=1000 checkpoint.every=2 ";
  const pid_t child = start(kept_in_file("run", "train.steps=1000000" + schedule));
  wait_for_step("run", "\"step\":5");
  const fs::path file = nameless_file(child);
  ASSERT_FALSE(file.empty());
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    static_cast<void>(::truncate(file.c_str(), 0));
    ::usleep(500);
  }
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(text_of(folder / "log.txt"),
              AllOf(HasSubstr("of the file of what blocks keep for backward in "),
                    AnyOf(HasSubstr("the file ends before it"),
                          HasSubstr("what was read differs from what was written")),
                    HasSubstr("last checkpoint")));
  expect_goes_on(kept_in_file("run", ""), schedule);
}

// Takes all that a file system has.
void fill_up(const fs::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  const std::string page(4096, 'x');
  while (::write(file, page.data(), page.size()) > 0) {
  }
  ::close(file);
}

TEST_F(TrainFileTier, StopsWhenItsDiskFillsUp) {
  if (::mount("tmpfs", (folder / "disk").c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "no right to mount a small file system";
  }
  const std::string schedule = " schedule.decay_steps=1000 checkpoint.every=2 ";
  const pid_t child = start(kept_in_file("run", "train.steps=1000000" + schedule));
  wait_for_step("run", "\"step\":5");
  const fs::path file = nameless_file(child);
  EXPECT_FALSE(file.empty());
  // Another file fills the disk between two of its transfers.
  ::kill(child, SIGSTOP);
  fill_up(folder / "disk" / "filler");
  EXPECT_EQ(::truncate(file.c_str(), 0), 0);
  fill_up(folder / "disk" / "filler");
  ::kill(child, SIGCONT);
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 1);
  EXPECT_EQ(::umount2((folder / "disk").c_str(), MNT_DETACH), 0);
  EXPECT_THAT(text_of(folder / "log.txt"),
              AllOf(HasSubstr("of the file of what blocks keep for backward in "),
                    AnyOf(HasSubstr("No space left on device"), HasSubstr("the file ends before")),
                    HasSubstr("last checkpoint")));
  expect_goes_on(kept_in_file("run", ""), schedule);
}

TEST_F(TrainFileTier, IsRefusedByADiskThatIsTooSmallBeforeItBegins) {
  if (::mount("tmpfs", (folder / "disk").c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "no right to mount a small file system";
  }
  const Outcome states = run_lockstep("train " + filed("small", "train.steps=2"));
  const Outcome kept = run_lockstep("train " + kept_in_file("small", "train.steps=2"));
  EXPECT_EQ(::umount2((folder / "disk").c_str(), MNT_DETACH), 0);
  for (const Outcome& run : {states, kept}) {
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.text, AllOf(HasSubstr("need a file of"), HasSubstr("free there"),
                                HasSubstr("No space left"), HasSubstr("offload.folder")));
  }
}

TEST_F(TrainFileTier, IsRefusedAtAllRanksWhereOneFindsNoRoom) {
  const std::string run =
      settings("shared", "train.steps=2 parallel.zero=1 offload.optimizer=file offload.folder=" +
                             (folder / "disk").string());
  const auto plan = nlohmann::json::parse(run_lockstep("plan " + run + " --ranks 3 --json").text);
  const auto capacity = plan["file_bytes"].get<std::size_t>() * 3 / 2;
  if (::mount("tmpfs", (folder / "disk").c_str(), "tmpfs", 0,
              ("size=" + std::to_string(capacity)).c_str()) != 0) {
    GTEST_SKIP() << "no right to mount a small file system";
  }
  const Outcome outcome = run_lockstep("train " + run + " --ranks 3");
  EXPECT_EQ(::umount2((folder / "disk").c_str(), MNT_DETACH), 0);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("need a file of"), HasSubstr("No space left"),
                                  Not(HasSubstr("has closed its communicator"))));
  EXPECT_FALSE(fs::exists(folder / "shared" / "checkpoints" / "step-00000001"));
}

}  // namespace
}  // namespace lockstep::train_file_tier_proc_test
