// `lockstep train` on two nodes of two ranks, each a launcher on the loopback.
#pragma once

#include <signal.h>

#include <fstream>
#include <map>
#include <string>

#include "lockstep/base/net/socket.h"
#include "tests/cli/train_ranks.h"

namespace lockstep::testing {

class TrainNodes : public TrainRanks {
 protected:
  // So many that a job is not at its end before a slow test has seen a step, and so few that a
  // machine with other work ends it: there a step takes twenty times as long.
  static constexpr int kSteps = 500;

  TrainNodes() : address_(format_host_port(listen_tcp({"127.0.0.1", 0}).address)) {}
  ~TrainNodes() override {
    for (const pid_t pid : launchers_) {
      if (pid == 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  std::string job(const std::string& dir, const std::string& more) const {
    return settings(
        dir, fmt::format("train.steps={} checkpoint.every=20 train.validate_every=200 {}", kSteps,
                         more));
  }

  // The launcher of a node, or one that takes the place of the node's last one.
  void start_node(int node, const std::string& arguments) {
    launchers_[node] = start_command(fmt::format(
        "{} exec {}{} train {} --ranks {} --nodes {} --node-rank {} --rendezvous {} >> {} 2>&1",
        kToken, command_begin_[node], in_build("lockstep"), arguments, ranks_, nodes_, node,
        address_, (folder / log_name(node)).string()));
  }
  void start_nodes(const std::string& arguments) {
    for (const int node : {0, 1}) {
      std::filesystem::remove(folder / log_name(node));
      start_node(node, arguments);
    }
  }
  pid_t launcher(int node) const { return launchers_[node]; }

  // The exit code of a node's launcher; -1: it does not end in time.
  int wait_node(int node) {
    int status = 0;
    const pid_t pid = launchers_[node];
    if (!eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; },
                    std::chrono::minutes(3))) {
      return -1;
    }
    launchers_[node] = 0;
    return ExitStatus{status}.code();
  }

  // Both processes of the launcher at once, as when a node goes down. Its ranks end with it.
  void kill_node(int node) {
    const pid_t pid = launchers_[node];
    pid_t supervisor = 0;
    std::ifstream(fmt::format("/proc/{0}/task/{0}/children", pid)) >> supervisor;
    ASSERT_GT(supervisor, 0);
    ::kill(pid, SIGSTOP);
    ::kill(supervisor, SIGKILL);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    launchers_[node] = 0;
  }

  void kill_rank(const std::string& dir, int rank, int signal = SIGKILL) const {
    const auto found = ranks(dir, std::to_string(rank));
    ASSERT_EQ(found.size(), 1u) << logs();
    ::kill(found.front(), signal);
  }

  void await_step(const std::string& dir, std::int64_t step) const {
    ASSERT_TRUE(eventually([&] { return last_step(dir) >= step; })) << logs();
  }
  // Steps of the generation that follows a recovery which a log has: a kill before that would be of
  // the same recovery.
  void await_progress(const std::string& dir) const { await_step(dir, last_step(dir) + 15); }
  void await_log(int node, const std::string& text) const {
    ASSERT_TRUE(eventually([&] { return log(node).find(text) != std::string::npos; }))
        << text << "\n"
        << logs();
  }

  std::string log(int node) const { return text_of(folder / log_name(node)); }
  std::string logs() const { return "node 0:\n" + log(0) + "\nnode 1:\n" + log(1); }

  // Every file of states of the last checkpoint.
  std::map<std::string, std::string> all_states(const std::string& dir) const {
    std::map<std::string, std::string> files;
    const auto checkpoint = folder / dir / "checkpoints" / fmt::format("step-{:08}", kSteps);
    if (!std::filesystem::exists(checkpoint)) {
      ADD_FAILURE() << checkpoint << " is missing\n" << logs();
      return files;
    }
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("states")) files[name] = text_of(entry.path());
    }
    EXPECT_FALSE(files.empty()) << dir;
    return files;
  }

  // Both launchers end well, with the bits of the run in `whole`, and leave nothing.
  void expect_undisturbed(const std::string& dir, const std::string& whole = "whole") {
    for (const int node : {0, 1}) EXPECT_EQ(wait_node(node), 0) << logs();
    EXPECT_EQ(losses(dir).size(), static_cast<std::size_t>(kSteps));
    EXPECT_EQ(losses(dir), losses(whole));
    EXPECT_EQ(all_states(dir), all_states(whole));
    expect_nobody_left(dir);
  }

  std::string ranks_ = "2";       // --ranks
  std::string nodes_ = "2";       // --nodes
  std::string address_;           // of the rendezvous
  std::string command_begin_[2];  // of the nodes' launchers

 private:
  static std::string log_name(int node) { return fmt::format("log.{}.txt", node); }

  pid_t launchers_[2] = {0, 0};
};

}  // namespace lockstep::testing
