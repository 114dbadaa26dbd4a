#include "lockstep/cli/live_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/launch/variables.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::seconds kToStart{10};
constexpr std::chrono::seconds kToEnd{2};

std::vector<std::string> environment_texts() {
  std::vector<std::string> texts;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) texts.emplace_back(*one);
  return texts;
}

// Up to a line's end; shorter where the other end closes, or is silent for too long.
std::string read_line(int file) {
  const Deadline deadline = deadline_in(kToStart);
  std::string line;
  while (!line.ends_with('\n') && !has_passed(deadline)) {
    pollfd waits{.fd = file, .events = POLLIN, .revents = 0};
    if (::poll(&waits, 1, 100) <= 0) continue;
    char one = 0;
    const ssize_t count = ::read(file, &one, 1);
    if (count == 0) break;
    if (count == 1) line += one;
  }
  return line;
}

}  // namespace

LiveProcess::LiveProcess(const train::RunOptions& options) {
  if (options.live.port == 0 || process_environment()(kLiveVariable)) return;
  Pipe input = make_pipe();
  Pipe output = make_pipe();
  SpawnRequest request{
      .program = std::filesystem::read_symlink("/proc/self/exe").string(),
      .arguments = {"lockstep", "watch", options.dir, "--of-run", "--port",
                    std::to_string(options.live.port), "--address", options.live.address},
      .environment = environment_texts(),
      .standard_input = input.read_end.get(),
      .standard_output = output.write_end.get(),
      .standard_error = STDERR_FILENO};
  if (!options.live.token_file.empty()) {
    request.arguments.insert(request.arguments.end(), {"--token-file", options.live.token_file});
  }
  pid_ = spawn(request);
  input.read_end.reset();
  output.write_end.reset();
  const std::string line = read_line(output.read_end.get());
  if (line.starts_with("http://")) {
    lifeline_ = std::move(input.write_end);
    fmt::print(stderr, "live page: {}", line);
    return;
  }
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  fail(ErrorCode::kInvalidArgument,
       "live.port = {}: the live page cannot be served (see above). Choose another live.port or "
       "live.address, or leave them out",
       options.live.port);
}

LiveProcess::~LiveProcess() {
  if (pid_ < 0) return;
  lifeline_.reset();
  const Deadline deadline = deadline_in(kToEnd);
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (has_passed(deadline)) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    ::poll(nullptr, 0, 10);
  }
}

}  // namespace lockstep::cli
