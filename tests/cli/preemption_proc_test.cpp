// The scripts of examples/ that start, stop and requeue a job, run by stand-ins for Slurm's
// commands and for the nodes of Kubernetes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>

#include "lockstep/base/net/socket.h"
#include "tests/cli/train_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::eventually;
using ::testing::HasSubstr;
using testing::run_lockstep;
using testing::shell;
namespace fs = std::filesystem;

class Preemption : public testing::TrainRanks {
 protected:
  Preemption() {
    put_program("lockstep", "exec " + in_build("lockstep") + " \"$@\"");
    port_ = listen_tcp({"127.0.0.1", 0}).address.port;
  }

  void put_program(const std::string& name, const std::string& body) const {
    fs::create_directories(folder / "bin");
    std::ofstream(folder / "bin" / name) << "#!/bin/bash\n" << body << "\n";
    fs::permissions(folder / "bin" / name, fs::perms::owner_all);
  }
  std::string environment() const {
    return fmt::format("HOME={0} PATH={0}/bin:$PATH ", folder.string());
  }
  std::string log() const { return text_of(folder / "log.txt"); }

  static std::string script(const char* name) {
    std::ifstream file(in_sources(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The flags of `lockstep train` that a script has.
  static std::set<std::string> flags_of(const std::string& text) {
    std::set<std::string> flags;
    const std::regex flag("(--[a-z-]+) (\"?\\$|[0-9])");
    for (std::sregex_iterator at(text.begin(), text.end(), flag), end; at != end; ++at) {
      flags.insert((*at)[1]);
    }
    return flags;
  }

  std::string settings_of(const std::string& dir, int steps) const {
    return settings(dir, fmt::format("train.steps={} checkpoint.every=0", steps));
  }

  int port_ = 0;
};

// A node is a process; what it would know of Slurm is in its environment.
class SlurmScript : public Preemption {
 protected:
  SlurmScript() {
    put_program(
        "srun",
        "while [[ $1 == -* ]]; do shift; done\n"
        "for node in 0 1; do\n"
        "  SLURM_NODEID=$node SLURM_PROCID=$node SLURM_NTASKS=2 SLURM_LOCALID=0 \"$@\" &\n"
        "  pids+=($!)\n"
        "done\n"
        "echo ${pids[@]} > $HOME/launchers\n"
        "code=0; for pid in ${pids[@]}; do wait $pid; got=$?; ((got > code)) && code=$got; done\n"
        "exit $code");
    put_program("scancel", "echo \"scancel $*\" >> $HOME/calls; kill -TERM $(cat $HOME/launchers)");
    put_program("squeue", "cat $HOME/state");
    put_program("scontrol", "[[ $1 == show ]] && echo 127.0.0.1 || echo \"$*\" >> $HOME/calls");
    set_state("RUNNING");
  }
  void set_state(const std::string& state) const { std::ofstream(folder / "state") << state; }
  std::string calls() const { return text_of(folder / "calls"); }

  std::string command(const std::string& arguments) const {
    return environment() +
           fmt::format(
               "SLURM_JOB_ID={} SLURM_JOB_NODELIST=n1 SLURM_JOB_NUM_NODES=2 RANKS=2 "
               "SLURM_NNODES=2 exec bash {} {}",
               port_ % 10'000, in_sources("examples/slurm/train.sbatch"), arguments);
  }
  // What the script ends with when it is told that its time is over.
  int stop_in_time(const std::string& dir) {
    const pid_t script = start_command(command(settings_of(dir, 100'000)));
    wait_for_step(dir, "\"step\":20,");
    ::kill(script, SIGTERM);
    const int status = wait_for(script);
    expect_nobody_left(dir);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(SlurmScript, StopsInTimeAndQueuesTheJobAgainWhichContinues) {
  EXPECT_EQ(stop_in_time("job"), 75) << log();
  const std::string id = std::to_string(port_ % 10'000);
  EXPECT_EQ(calls(), "scancel --signal=TERM " + id + "\nrequeue " + id + "\n");
  EXPECT_THAT(log(), AllOf(HasSubstr("saved after step"), HasSubstr("is queued again")));
  const std::size_t before = losses("job").size();
  const int more = static_cast<int>(before) + 5;
  const auto again = shell(command(settings_of("job", more)) + " 2>&1");
  EXPECT_EQ(again.exit_code, 0) << again.text;
  EXPECT_THAT(again.text, HasSubstr("resumed"));
  EXPECT_EQ(losses("job").size(), static_cast<std::size_t>(more));
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("token")));
  }
}

TEST_F(SlurmScript, DoesNotQueueACancelledJobAgain) {
  set_state("COMPLETING");
  EXPECT_EQ(stop_in_time("job"), 75) << log();
  EXPECT_THAT(calls(), ::testing::Not(HasSubstr("requeue")));
}

TEST_F(SlurmScript, EndsWithTheErrorOfTheRun) {
  const auto end = shell(command(settings_of("job", 5) + " model.heads=5") + " 2>&1");
  EXPECT_EQ(end.exit_code, 2) << end.text;
  EXPECT_EQ(calls(), "");
}

TEST_F(SlurmScript, PassesShellcheck) {
  if (shell("command -v shellcheck").exit_code != 0) GTEST_SKIP() << "there is no shellcheck";
  const auto found = shell("shellcheck " + in_sources("examples/slurm/train.sbatch") + " 2>&1");
  EXPECT_EQ(found.exit_code, 0) << found.text;
}

class KubernetesJob : public Preemption {
 protected:
  // The command of a container, with the test's paths.
  std::string command(const std::string& arguments) const {
    std::string body;
    bool inside = false;
    std::ifstream file(in_sources("examples/kubernetes/train.yaml"));
    for (std::string line; std::getline(file, line);) {
      constexpr std::string_view kIndent = "              ";
      inside = inside ? line.starts_with(kIndent) : line == "            - |";
      if (inside && line.starts_with(kIndent)) body += line.substr(kIndent.size()) + "\n";
    }
    const auto replace = [&](const std::string& old, const std::string& with) {
      const auto at = body.find(old);
      ASSERT_NE(at, std::string::npos) << old << " is not in\n" << body;
      body.replace(at, old.size(), with);
    };
    replace("/config/run.toml run.dir=/runs/first", arguments);
    replace("--ranks 4", "--ranks 2");
    replace("=train-0.train", "=127.0.0.1");
    replace("29400", std::to_string(port_));
    return body;
  }
};

// As the pod that is to be moved gets it; the other stops with it.
TEST_F(KubernetesJob, StopsWithThePodThatIsMoved) {
  put_program("hostname", "echo 127.0.0.1");
  std::ofstream(folder / "command.sh") << command(settings_of("job", 100'000));
  pid_t pods[2];
  for (const int index : {0, 1}) {
    pods[index] = start_command(
        environment() + kToken +
        fmt::format(" JOB_COMPLETION_INDEX={} exec sh {}/command.sh", index, folder.string()));
  }
  wait_for_step("job", "\"step\":20,");
  ::kill(pods[1], SIGTERM);
  for (const pid_t pod : pods) {
    const int status = wait_for(pod);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 75) << log();
  }
  EXPECT_THAT(log(), HasSubstr("saved after step"));
  expect_nobody_left("job");
}

TEST_F(KubernetesJob, IsYaml) {
  if (shell("python3 -c 'import yaml' 2>&1").exit_code != 0) {
    GTEST_SKIP() << "there is no Python package yaml";
  }
  const auto kinds = shell(
      "python3 -c 'import sys, yaml\nfor one in yaml.safe_load_all(open(sys."
      "argv[1])): print(one[\"kind\"])' " +
      in_sources("examples/kubernetes/train.yaml") + " 2>&1");
  EXPECT_EQ(kinds.text, "Service\nJob\n");
}

TEST_F(Preemption, ScriptsUseFlagsThatThereAre) {
  const std::string help = run_lockstep("train --help").text;
  for (const char* name : {"examples/slurm/train.sbatch", "examples/kubernetes/train.yaml"}) {
    std::set<std::string> flags = flags_of(script(name));
    EXPECT_TRUE(flags.contains("--ranks")) << name;
    EXPECT_TRUE(flags.contains("--node-rank")) << name;
    for (const std::string& flag : flags) EXPECT_THAT(help, HasSubstr(flag)) << name;
  }
}

}  // namespace
}  // namespace lockstep
