#include "lockstep/launch/descendants.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill() is in no other
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The parent of a process, from the fourth field of its stat file; 0 when it has gone. The second
// field, the name in parentheses, may itself hold spaces and parentheses.
pid_t parent_of(const std::filesystem::path& process) {
  std::ifstream file(process / "stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  int parent = 0;
  char state = 0;
  if (name_end == std::string::npos ||
      std::sscanf(line.c_str() + name_end + 1, " %c %d", &state, &parent) != 2) {
    return 0;
  }
  return parent;
}

}  // namespace

void adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
    fail_errno("cannot adopt orphaned processes (PR_SET_CHILD_SUBREAPER)", errno);
  }
}

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    pid_t pid = 0;
    const auto [last, problem] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (problem == std::errc() && last == name.data() + name.size() &&
        parent_of(at->path()) == process) {
      children.push_back(pid);
    }
  }
  return children;
}

bool kill_descendants(Deadline deadline) {
  constexpr timespec kTick{0, 20'000'000};
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  while (true) {
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) return true;
    if (has_passed(deadline)) return false;
    for (const pid_t child : children_of(::getpid())) ::kill(child, SIGKILL);
    ::sigtimedwait(&child_ended, nullptr, &kTick);
  }
}

}  // namespace lockstep
