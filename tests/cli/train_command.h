// `lockstep train` as a process of its own, on a small text.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/cli/shell.h"
#include "tests/paths.h"

namespace lockstep::testing {

class TrainCommand : public ::testing::Test {
 protected:
  TrainCommand() {
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 300; ++i)
      text << "it was the best of times " << i << ", it was the worst\n";
  }

  std::string settings(const std::string& dir, const std::string& more = "") const {
    return "data.text=" + (folder / "text.txt").string() + " run.dir=" + (folder / dir).string() +
           " data.tokenizer=byte model.layers=2 model.hidden=32 model.heads=2 train.seq_len=16 "
           "train.global_batch_size=4 train.precision=f32 train.threads=1 train.validate_every=0 "
           "train.validate_batches=1 " +
           more;
  }

  // Started without a shell in between, so that a signal hits the command itself.
  pid_t start(const std::string& arguments) const {
    return start_command("exec " + in_build("lockstep") + " train " + arguments);
  }
  pid_t start_command(const std::string& command) const {
    const std::string log = (folder / "log.txt").string();
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }

  static int wait_for(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }

  std::string text_of(const std::filesystem::path& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // The step and loss of every line of metrics.
  std::vector<std::string> losses(const std::string& dir) const {
    std::vector<std::string> lines;
    std::ifstream file(folder / dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line.substr(0, line.find(',', line.find("\"loss\""))));
    }
    return lines;
  }

  // The last step in the metrics; 0: none.
  std::int64_t last_step(const std::string& dir) const {
    const std::string text = text_of(folder / dir / "metrics.jsonl");
    const auto at = text.rfind("{\"step\":");
    return at == std::string::npos ? 0 : std::stoll(text.substr(at + 8));
  }

  // Until the metrics have a line of that step.
  void wait_for_step(const std::string& dir, const char* step) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (text_of(folder / dir / "metrics.jsonl").find(step) == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << text_of(folder / "log.txt");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path();
};

}  // namespace lockstep::testing
