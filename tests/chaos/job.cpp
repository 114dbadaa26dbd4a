#include "tests/chaos/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "lockstep/launch/exit_status.h"
#include "tests/launch/launched.h"
#include "tests/paths.h"

namespace lockstep::chaos {
namespace fs = std::filesystem;
using testing::read_text;

Job::Job(const Kind& kind, const Place& place, const fs::path& folder)
    : kind_(kind),
      place_(place),
      folder_(folder),
      launchers_(static_cast<std::size_t>(kind.nodes)) {}

Job::~Job() {
  for (const Launcher& launcher : launchers_) {
    if (launcher.pid == 0) continue;
    ::kill(launcher.pid, SIGKILL);
    ::waitpid(launcher.pid, nullptr, 0);
  }
  for (const pid_t pid : processes()) ::kill(pid, SIGKILL);
}

fs::path Job::log(int node) const { return fmt::format("{}.log.{}", folder_.string(), node); }

std::string Job::command(int node) const {
  std::string command = fmt::format("export LOCKSTEP_TOKEN={}\n", std::string(64, 'a'));
  command += fmt::format("export LD_PRELOAD={} CHAOS_FOLDER={}\nexec ",
                         in_build("tests/libfaulty_system.so"), folder_.string());
  if (kind_.has_hosts) command += place_.hosts->on(node + 1);
  command += fmt::format(
      "{} train data.text={} run.dir={} data.tokenizer=byte model.layers=2 model.hidden=32 "
      "model.heads=2 train.seq_len=16 train.global_batch_size=4 train.precision=f32 "
      "train.threads=1 train.steps={} train.validate_every=50 train.validate_batches=1 "
      "checkpoint.every=20 survive.hang_timeout=5s {} --ranks {}{}",
      in_build("lockstep"), (place_.folder / "text.txt").string(), folder_.string(), kSteps,
      kind_.settings, kind_.is_elastic ? "1:" : "", kRanks / kind_.nodes);
  if (kind_.is_elastic) command += " --max-restarts 0";
  if (kind_.nodes > 1) {
    command += fmt::format(" --nodes {}{} --node-rank {} --rendezvous {}",
                           kind_.is_elastic ? "1:" : "", kind_.nodes, node,
                           kind_.has_hosts ? place_.hosts->address(1) + ":29417" : place_.address);
  }
  return command;
}

void Job::start() {
  for (int node = 0; node < kind_.nodes; ++node) start_node(node);
}

void Job::start_node(int node) {
  const std::string text = command(node);
  const std::string output = log(node).string();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setpgid(0, 0);  // Ctrl-C is this program's, which ends the job
    const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execl("/bin/sh", "sh", "-c", text.c_str(), nullptr);
    ::_exit(127);
  }
  launchers_.at(static_cast<std::size_t>(node)) = {.pid = child};
}

void Job::signal_node(int node, int signal) const {
  const pid_t pid = launchers_.at(static_cast<std::size_t>(node)).pid;
  if (pid != 0) ::kill(pid, signal);
}

void Job::kill_node(int node) {
  Launcher& launcher = launchers_.at(static_cast<std::size_t>(node));
  if (launcher.pid == 0) return;
  pid_t supervisor = 0;
  std::ifstream(fmt::format("/proc/{0}/task/{0}/children", launcher.pid)) >> supervisor;
  ::kill(launcher.pid, SIGSTOP);
  if (supervisor > 0) ::kill(supervisor, SIGKILL);
  ::kill(launcher.pid, SIGKILL);
  ::waitpid(launcher.pid, nullptr, 0);
  launcher = {.pid = 0, .exit_code = 128 + SIGKILL};
}

std::vector<pid_t> Job::processes() const {
  std::vector<pid_t> found;
  const std::string mark = "run.dir=" + folder_.string() + std::string(1, '\0');
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_text(entry.path() / "cmdline").find(mark) == std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    const auto is_this = [&](const Launcher& one) { return one.pid == pid; };
    if (std::ranges::none_of(launchers_, is_this)) found.push_back(pid);
  }
  return found;
}

std::vector<pid_t> Job::rank(int rank) const {
  const std::string variable =
      std::string(1, '\0') + "RANK=" + std::to_string(rank) + std::string(1, '\0');
  std::vector<pid_t> found;
  for (const pid_t pid : processes()) {
    const std::string environment = read_text(fmt::format("/proc/{}/environ", pid));
    if (environment.find(variable) != std::string::npos) found.push_back(pid);
  }
  return found;
}

bool Job::has_ended() {
  bool all = true;
  for (Launcher& launcher : launchers_) {
    int status = 0;
    if (launcher.pid != 0 && ::waitpid(launcher.pid, &status, WNOHANG) == launcher.pid) {
      launcher = {.pid = 0, .exit_code = ExitStatus{status}.code()};
    }
    all = all && launcher.pid == 0;
  }
  return all;
}

bool Job::ended_well() const {
  return std::ranges::all_of(
      launchers_, [](const Launcher& one) { return one.pid == 0 && one.exit_code == 0; });
}

std::string Job::exit_codes() const {
  std::string text;
  for (const Launcher& launcher : launchers_) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", launcher.exit_code);
  }
  return text;
}

void Job::resize(int ranks) const {
  testing::quiet_shell(
      fmt::format("{} resize {} {}", in_build("lockstep"), folder_.string(), ranks));
}

std::int64_t Job::last_step() const {
  const std::string text = read_text(folder_ / "metrics.jsonl");
  const auto at = text.rfind("{\"step\":");
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + 8);
}

std::vector<std::string> Job::losses() const {
  std::vector<std::string> lines;
  std::ifstream file(folder_ / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line.substr(0, line.find(',', line.find("\"loss\""))));
  }
  return lines;
}

std::map<std::string, std::string> Job::states() const {
  std::map<std::string, std::string> files;
  const fs::path checkpoint = folder_ / "checkpoints" / fmt::format("step-{:08}", kSteps);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoint, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("states")) files[name] = read_text(entry.path());
  }
  return files;
}

std::string Job::logs() const {
  std::string text;
  for (int node = 0; node < kind_.nodes; ++node) text += read_text(log(node));
  return text;
}

}  // namespace lockstep::chaos
