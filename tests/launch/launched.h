// A real `lockstep launch`, started by a test.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/spawn.h"
#include "tests/paths.h"

namespace lockstep::testing {

inline constexpr std::chrono::seconds kTimeout{60};

// Whether `condition` comes true in time.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds timeout = kTimeout) {
  const Deadline deadline = deadline_in(timeout);
  while (!condition()) {
    if (has_passed(deadline)) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Processes that carry a variable in their environment.
inline std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_text(entry.path() / "environ").find(variable) != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

// The environment of this process, in which `variables` replace those of the same name.
inline std::vector<std::string> with_variables(const std::vector<std::string>& variables) {
  const auto name_of = [](std::string_view variable) {
    return variable.substr(0, variable.find('='));
  };
  std::vector<std::string> environment = variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const bool is_replaced = std::ranges::any_of(
        variables, [&](const std::string& one) { return name_of(one) == name_of(*at); });
    if (!is_replaced) environment.emplace_back(*at);
  }
  return environment;
}

// Standard output and error go to files; $DIR is a folder of the job's own. All processes of the
// job can be found by a mark in their environment.
class Launched {
 public:
  explicit Launched(std::vector<std::string> arguments, std::vector<std::string> variables = {},
                    std::string input = "") {
    std::array<std::byte, 8> random;
    fill_random(random);
    mark_ = "LOCKSTEP_TEST_MARK=" + to_hex(random);
    SpawnRequest request;
    request.program = in_build("lockstep");
    request.arguments = {"lockstep", "launch"};
    request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
    variables.push_back("DIR=" + folder().string());
    variables.push_back(mark_);
    request.environment = with_variables(variables);
    std::ofstream(folder() / "stdin") << input;
    const UniqueFd in(::open((folder() / "stdin").c_str(), O_RDONLY | O_CLOEXEC));
    const UniqueFd out(::open((folder() / "stdout").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const UniqueFd err(::open((folder() / "stderr").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    request.standard_input = in.get();
    request.standard_output = out.get();
    request.standard_error = err.get();
    ::signal(SIGINT, SIG_DFL);  // a background job of a shell may have been started to ignore it
    pid_ = spawn(request);
  }

  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  ~Launched() {
    if (!code_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const pid_t pid : survivors()) ::kill(pid, SIGKILL);
  }

  pid_t pid() const { return pid_; }
  std::filesystem::path folder() const { return folder_.path(); }
  std::string out() const { return read_text(folder() / "stdout"); }
  std::string err() const { return read_text(folder() / "stderr"); }
  bool has_file(const std::string& name) const { return std::filesystem::exists(folder() / name); }
  void touch(const std::string& name) const { std::ofstream(folder() / name).flush(); }
  void signal(int number) const { ::kill(pid_, number); }

  // The exit code, or 128 + signal; -1 when it does not end in time.
  int wait(std::chrono::milliseconds timeout = kTimeout) {
    int status = 0;
    if (!code_ && eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, timeout)) {
      code_ = ExitStatus{status}.code();
    }
    return code_.value_or(-1);
  }

  std::vector<pid_t> survivors() const { return processes_with(mark_); }
  bool leaves_nobody() const {
    return eventually([&] { return survivors().empty(); }, std::chrono::seconds(20));
  }

 private:
  ScratchFolder folder_;
  std::string mark_;
  pid_t pid_ = 0;
  std::optional<int> code_;
};

}  // namespace lockstep::testing
