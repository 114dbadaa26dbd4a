#include "lockstep/launch/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/descriptor_limit.h"
#include "lockstep/base/text/text.h"

namespace lockstep {
namespace {

constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

bool is_executable_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Between fork and exec of a process with threads: only what POSIX allows in signal handlers.
[[noreturn]] void become(const SpawnRequest& request, char* const* arguments,
                         char* const* environment, pid_t parent, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  ::signal(SIGTTOU, SIG_DFL);
  restore_descriptor_limit();
  if (request.cpus) ::sched_setaffinity(0, sizeof(cpu_set_t), &request.cpus->native());
  if (request.inherited >= 0) ::fcntl(request.inherited, F_SETFD, 0);
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (request.holds_stop_signals) sigaddset(&blocked, signal);
  }
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  if (::dup2(request.standard_input, STDIN_FILENO) >= 0 &&
      ::dup2(request.standard_output, STDOUT_FILENO) >= 0 &&
      ::dup2(request.standard_error, STDERR_FILENO) >= 0) {
    ::execve(request.program.c_str(), arguments, environment);
  }
  const int problem = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &problem, sizeof problem);
  ::_exit(kNotExecutable);
}

}  // namespace

std::string find_program(const std::string& name, const EnvironmentLookup& environment) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), F_OK) != 0) {
      throw CommandError{fmt::format("cannot run '{}': no such file", name), kNotFound};
    }
    if (!is_executable_file(name)) {
      throw CommandError{fmt::format("cannot run '{}': it is not an executable file", name),
                         kNotExecutable};
    }
    return name;
  }
  const std::string path = environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (const std::string_view folder : split_text(path, ':')) {
    const std::string candidate =
        fmt::format("{}/{}", folder.empty() ? std::string_view(".") : folder, name);
    if (is_executable_file(candidate)) return candidate;
  }
  const bool is_here = !name.empty() && ::access(name.c_str(), F_OK) == 0;
  throw CommandError{
      fmt::format("cannot find the command '{}' in PATH{}", name,
                  is_here ? fmt::format("; to run the file in this folder, write ./{}", name) : ""),
      kNotFound};
}

pid_t spawn(const SpawnRequest& request) {
  Pipe report = make_pipe();
  const auto arguments = pointers(request.arguments);
  const auto environment = pointers(request.environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) fail_errno("cannot start another process", errno);
  if (child == 0) {
    become(request, arguments.data(), environment.data(), parent, report.write_end.get());
  }
  ::setpgid(child, child);
  report.write_end.reset();
  int problem = 0;
  ssize_t got = 0;
  do {
    got = ::read(report.read_end.get(), &problem, sizeof problem);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof problem) return child;
  ::waitpid(child, nullptr, 0);
  throw CommandError{
      fmt::format("cannot run '{}': {}{}", request.program,
                  std::generic_category().message(problem),
                  problem == ENOEXEC ? "; a script needs a first line like #!/bin/sh" : ""),
      problem == ENOENT ? kNotFound : kNotExecutable};
}

}  // namespace lockstep
