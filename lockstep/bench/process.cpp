#include "lockstep/bench/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::bench {
namespace {

constexpr off_t kLastWordsBytes = 2000;
constexpr std::chrono::seconds kGrace{3};
constexpr int kCannotStart = 127;

// Only calls that are safe between fork and exec.
[[noreturn]] void become(char* const* arguments, char* const* environment, int output,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kCannotStart);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execvpe(arguments[0], arguments, environment);
  ::dprintf(STDERR_FILENO, "cannot start %s: %s\n", arguments[0], std::strerror(errno));
  ::_exit(kCannotStart);
}

std::vector<std::string> merged_environment(const Program& program) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool replaced = std::any_of(program.environment.begin(), program.environment.end(),
                                      [&](const auto& variable) {
                                        return text.starts_with(variable.first) &&
                                               text.substr(variable.first.size()).starts_with('=');
                                      });
    if (!replaced) merged.emplace_back(text);
  }
  for (const auto& [key, value] : program.environment) merged.push_back(key + "=" + value);
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Process::Process(const Program& program)
    : output_(::memfd_create("lockstep-bench-output", MFD_CLOEXEC)) {
  if (output_.get() < 0) fail_errno("cannot make a file for a program's output", errno);
  std::vector<std::string> arguments = program.arguments;
  std::vector<std::string> environment = merged_environment(program);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) fail_errno("cannot start a process", errno);
  if (pid_ == 0) become(argv.data(), envp.data(), output_.get(), parent);
  ::setpgid(pid_, pid_);  // parent and child both call it, so their order does not matter
  watch_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (watch_.get() < 0) {
    const int error = errno;
    end();
    fail_errno("cannot watch a process", error);
  }
}

Process::~Process() { end(); }

bool Process::wait_until(Deadline deadline) {
  if (!ended_ && wait_for_fd(watch_.get(), POLLIN, deadline)) {
    ::waitpid(pid_, &status_, 0);
    ended_ = true;
  }
  return ended_;
}

void Process::end() {
  if (pid_ < 0) return;
  if (!wait_until(Deadline::min())) {
    ::kill(-pid_, SIGTERM);
    wait_until(deadline_in(kGrace));
  }
  ::kill(-pid_, SIGKILL);  // the group may outlive its leader
  if (!ended_) {
    ::waitpid(pid_, &status_, 0);
    ended_ = true;
  }
  pid_ = -1;
}

std::string Process::how_it_ended() const {
  if (WIFSIGNALED(status_)) return fmt::format("SIG{}", sigabbrev_np(WTERMSIG(status_)));
  return fmt::format("exit code {}", WEXITSTATUS(status_));
}

std::string Process::last_words() const {
  struct stat status {};
  ::fstat(output_.get(), &status);
  const off_t from = std::max<off_t>(0, status.st_size - kLastWordsBytes);
  std::string text(static_cast<std::size_t>(status.st_size - from), '\0');
  const ssize_t got = ::pread(output_.get(), text.data(), text.size(), from);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  return std::string(trim(text));
}

}  // namespace lockstep::bench
