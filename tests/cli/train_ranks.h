// `lockstep train` as several processes that train one model.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/train_command.h"
#include "tests/launch/launched.h"

namespace lockstep::testing {

class TrainRanks : public TrainCommand {
 protected:
  static constexpr const char* kToken =
      "LOCKSTEP_TOKEN=abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd";

  // In micro-batches of one sequence, summed by a tree.
  std::string tree(const std::string& dir, const std::string& more = "") const {
    return settings(dir, "train.micro_batch_size=1 parallel.reduction=tree " + more);
  }

  std::string states(const std::string& dir, const std::string& step) const {
    const std::string text =
        text_of(folder / dir / "checkpoints" / ("step-" + step) / "states.safetensors");
    EXPECT_FALSE(text.empty()) << dir;
    return text;
  }

  void expect_same(const std::string& dir, const std::string& other, const std::string& step) {
    EXPECT_EQ(losses(dir), losses(other));
    EXPECT_EQ(states(dir, step), states(other, step));
  }

  // The processes of this run, found by its folder in their command lines.
  std::vector<pid_t> processes(const std::string& dir) const {
    std::vector<pid_t> found;
    const std::string mark = "run.dir=" + (folder / dir).string();
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (read_text(entry.path() / "cmdline").find(mark) != std::string::npos) {
        found.push_back(std::stoi(name));
      }
    }
    return found;
  }
  // Those that are ranks.
  std::vector<pid_t> ranks(const std::string& dir, const std::string& rank) const {
    std::vector<pid_t> found;
    for (const pid_t pid : processes(dir)) {
      const std::string environment = read_text(fmt::format("/proc/{}/environ", pid));
      if (environment.find(std::string("\0RANK=", 6) + rank + '\0') != std::string::npos) {
        found.push_back(pid);
      }
    }
    return found;
  }
  std::vector<nlohmann::json> metrics(const std::string& dir) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(folder / dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  // Every step once, with losses like those of "whole". Returns the largest difference.
  void expect_losses_of_whole(const std::string& dir, double tolerance) const {
    const auto mine = metrics(dir);
    const auto whole = metrics("whole");
    ASSERT_GE(whole.size(), mine.size());
    ASSERT_FALSE(mine.empty());
    double most = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      ASSERT_EQ(mine[i]["step"], i + 1);
      ASSERT_EQ(mine[i]["tokens"], whole[i]["tokens"]);
      most =
          std::max(most, std::abs(mine[i]["loss"].get<double>() - whole[i]["loss"].get<double>()));
    }
    EXPECT_LE(most, tolerance);
    fmt::print("{}: {} steps, largest difference of losses {:.2g}\n", dir, mine.size(), most);
  }

  // The numbers of ranks that the steps had, one after the other.
  std::vector<int> ranks_of_steps(const std::string& dir) const {
    std::vector<int> all;
    for (const auto& line : metrics(dir)) {
      const int ranks = line.value("ranks", 1);
      if (all.empty() || all.back() != ranks) all.push_back(ranks);
    }
    return all;
  }

  void expect_nobody_left(const std::string& dir) const {
    EXPECT_TRUE(eventually([&] { return processes(dir).empty(); }, std::chrono::seconds(20)));
  }
};

}  // namespace lockstep::testing
