// Several "hosts" on one machine: network namespaces joined by a bridge. Ranks of different hosts
// cannot see each other's memory or local sockets, so everything between them goes over TCP.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/launch/launched.h"
#include "tests/paths.h"

namespace lockstep::testing {

inline int quiet_shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str());  // NOLINT: fixed commands
}

// Hosts 10.77.N.1, 10.77.N.2 ... of a network that is taken down with the object. N and the names
// come from the process id, so that test programs can run side by side.
class Hosts {
 public:
  explicit Hosts(int count) : prefix_(fmt::format("ls{}", ::getpid() % 10'000)), count_(count) {
    run(fmt::format("ip link add {0}br type bridge && ip link set {0}br up", prefix_));
    for (int i = 1; i <= count; ++i) {
      run(
          fmt::format("ip netns add {0}h{1} && "
                      "ip link add {0}v{1} type veth peer name eth0 netns {0}h{1} && "
                      "ip link set {0}v{1} master {0}br up && "
                      "ip -n {0}h{1} addr add {2}/24 dev eth0 && "
                      "ip -n {0}h{1} link set eth0 up && ip -n {0}h{1} link set lo up",
                      prefix_, i, address(i)));
    }
  }
  ~Hosts() {
    for (int i = 1; i <= count_; ++i) quiet_shell(fmt::format("ip netns del {}h{}", prefix_, i));
    quiet_shell(fmt::format("ip link del {}br", prefix_));
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  static bool allowed() { return ::geteuid() == 0; }
  bool ready() const { return ready_; }
  std::string address(int host) const { return fmt::format("10.77.{}.{}", ::getpid() % 250, host); }
  // What begins a command on a host. / Pulls its cable, or plugs it in again.
  std::string on(int host) const { return fmt::format("ip netns exec {}h{} ", prefix_, host); }
  void plug(int host, bool in) {
    run(fmt::format("ip link set {}v{} {}", prefix_, host, in ? "up" : "down"));
  }
  void slow_down(int host, const std::string& rate) {
    run(
        fmt::format("ip netns exec {0}h{1} tc qdisc add dev eth0 root tbf rate {2} burst 32k "
                    "latency 400ms",
                    prefix_, host, rate));
  }

  void speed_up(int host) {
    run(fmt::format("ip netns exec {0}h{1} tc qdisc del dev eth0 root", prefix_, host));
  }

  // Runs `program` on every host with `ranks` ranks each; returns host 1's output. Every launcher
  // must end well.
  std::string launch(int ranks, const std::string& program, const std::string& variables) {
    const std::string begin = fmt::format("launch -n {}", ranks);
    return well(everywhere(std::vector(hosts(), begin), "-- " + program, variables));
  }
  // The same for a run of training.
  std::string train(int ranks, const std::string& settings, const std::string& variables) {
    return well(train_by(ranks, std::vector(hosts(), settings), variables));
  }

  // How a host's launcher ended, and what it wrote.
  struct End {
    int exit_code = -1;
    std::string text;
  };
  // A run of training to which every host comes with settings of its own.
  std::vector<End> train_by(int ranks, const std::vector<std::string>& settings,
                            const std::string& variables) {
    std::vector<std::string> begins;
    for (const std::string& one : settings) {
      begins.push_back(fmt::format("train {} --ranks {}", one, ranks));
    }
    return everywhere(begins, "", variables);
  }

 private:
  std::size_t hosts() const { return static_cast<std::size_t>(count_); }

  static std::string well(const std::vector<End>& ends) {
    for (const End& end : ends) EXPECT_EQ(end.exit_code, 0) << end.text;
    return ends.front().text;
  }

  // lockstep BEGIN --nodes ... END on every host at once, with a BEGIN for each.
  std::vector<End> everywhere(const std::vector<std::string>& begins, const std::string& end,
                              const std::string& variables) {
    const ScratchFolder folder;
    const auto file = [&](const char* name, int host) {
      return (folder.path() / fmt::format("{}{}", name, host)).string();
    };
    std::string script =
        fmt::format("export LOCKSTEP_TOKEN={} {}\n", std::string(64, 'a'), variables);
    for (int i = 1; i <= count_; ++i) {
      script += fmt::format(
          "{{ ip netns exec {}h{} {} {} --nodes {} --node-rank {} --rendezvous {}:29411 {} > "
          "{} 2>&1; echo $? > {}; }} &\n",
          prefix_, i, in_build("lockstep"), begins[static_cast<std::size_t>(i - 1)], count_, i - 1,
          address(1), end, file("out", i), file("code", i));
    }
    std::ofstream(folder.path() / "script") << script << "wait\n";
    quiet_shell("timeout 120 bash " + (folder.path() / "script").string());
    std::vector<End> ends(hosts());
    for (int i = 1; i <= count_; ++i) {
      End& one = ends[static_cast<std::size_t>(i - 1)];
      std::ifstream(file("code", i)) >> one.exit_code;
      one.text = read_text(file("out", i));
    }
    return ends;
  }

  void run(const std::string& command) { ready_ = ready_ && quiet_shell(command) == 0; }

  std::string prefix_;
  int count_;
  bool ready_ = true;
};

}  // namespace lockstep::testing
