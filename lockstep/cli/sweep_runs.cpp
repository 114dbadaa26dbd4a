#include "lockstep/cli/sweep_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::cli {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
constexpr std::string_view kThreadsVariable = "LOCKSTEP_TRAIN_THREADS=";

std::vector<std::string> environment_with(int threads) {
  std::vector<std::string> variables;
  bool given = false;
  for (char** one = environ; *one != nullptr; ++one) {
    variables.emplace_back(*one);
    given = given || variables.back().starts_with(kThreadsVariable);
  }
  if (threads > 0 && !given) variables.push_back(fmt::format("{}{}", kThreadsVariable, threads));
  return variables;
}

struct RunningProcess {
  const SweepRun* run;
  pid_t pid;
};

RunningProcess start_process(const SweepRun& run, int threads) {
  const std::string path = run.log.string();
  const UniqueFd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0) fail_errno("cannot write " + path, errno);
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnRequest request{.program = std::filesystem::read_symlink("/proc/self/exe").string(),
                       .arguments = {"lockstep", "train"},
                       .environment = environment_with(threads),
                       .standard_input = nothing.get(),
                       .standard_output = log.get(),
                       .standard_error = log.get()};
  request.arguments.insert(request.arguments.end(), run.arguments.begin(), run.arguments.end());
  return {&run, spawn(request)};
}

}  // namespace

bool run_sweep(const std::vector<SweepRun>& runs, const SweepProcesses& processes,
               const train::StopSignal& stop) {
  std::vector<RunningProcess> running;
  std::size_t next = 0;
  bool asked = false;
  while (next < runs.size() || !running.empty()) {
    if (stop.came()) {
      if (!asked) {
        for (const RunningProcess& one : running) ::kill(one.pid, SIGTERM);
      }
      asked = true;
      if (running.empty()) break;
    }
    while (!asked && next < runs.size() &&
           running.size() < static_cast<std::size_t>(processes.jobs)) {
      processes.begins(runs[next]);
      running.push_back(start_process(runs[next++], processes.threads));
    }
    bool ended = false;
    for (std::size_t i = running.size(); i-- > 0;) {
      ExitStatus status;
      if (::waitpid(running[i].pid, &status.wait_status, WNOHANG) != running[i].pid) continue;
      const SweepRun& run = *running[i].run;
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      processes.ends(run, status.code());
      ended = true;
    }
    if (!ended) std::this_thread::sleep_for(kBetweenLooks);
  }
  return next == runs.size();
}

}  // namespace lockstep::cli
