// lockstep watch: the live page of runs.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/host_port.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/cli/command.h"
#include "lockstep/live/access.h"
#include "lockstep/live/runs.h"
#include "lockstep/live/server.h"

namespace lockstep::cli {
namespace {

constexpr const char* kWatchFooter =
    R"TEXT(Prints a link and serves until Ctrl-C. The page shows runs in progress and finished ones, needs no
network, and reads nothing but the folders of the runs. The link has a token, without which nobody
reads the page. On another machine, forward the port and open the same link:

  ssh -L 8080:127.0.0.1:8080 node0

`lockstep train ... live.port=8080` serves the page of a run while it trains.

Examples:
  lockstep watch runs/first
  lockstep watch runs                      every run in the folder, to compare
  lockstep watch runs --port 9000
  curl -H "Authorization: Bearer $(cat token)" http://127.0.0.1:8080/metrics     (--token-file token))TEXT";

constexpr int kUsualPort = 8080;

struct WatchFlags {
  std::string path;
  int port = kUsualPort;
  std::string address = "127.0.0.1";
  std::string token_file;
  bool of_run = false;  // started by a run: live_process.h
};

// The usual port, or any where that is taken; only the given one if it was asked for.
std::unique_ptr<live::Server> open_server(const live::Runs& runs, live::ServerOptions options,
                                          bool may_differ) {
  try {
    return std::make_unique<live::Server>(runs, options);
  } catch (const Error& error) {
    if (!may_differ || error.code() != ErrorCode::kSystem) throw;
    options.port = 0;
    return std::make_unique<live::Server>(runs, options);
  }
}

// Of this process, before it has other threads: they are all to leave the signals to one.
UniqueFd take_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd file(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!file) fail_errno("cannot wait for signals", errno);
  return file;
}

// Until a signal, or with `until_input_ends` the end of standard input.
void wait_for_the_end(int signals, bool until_input_ends) {
  pollfd waits[] = {{.fd = signals, .events = POLLIN, .revents = 0},
                    {.fd = until_input_ends ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
  while (waits[0].revents == 0) {
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return;
    char ignored[64];
    if (waits[1].revents != 0 && ::read(STDIN_FILENO, ignored, sizeof ignored) <= 0) return;
  }
}

void watch(const WatchFlags& flags, bool port_is_given) {
  constexpr int kLessUrgent = 10;
  // A run comes first.
  if (flags.of_run) ::setpriority(PRIO_PROCESS, 0, kLessUrgent);
  live::Runs runs(flags.path, flags.of_run ? live::Runs::Kind::kRunToCome : live::Runs::Kind::kAny);
  const std::string token =
      flags.token_file.empty() ? live::make_token() : live::token_of_file(flags.token_file);
  const UniqueFd signals = take_stop_signals();
  const auto server = open_server(
      runs, {.address = flags.address, .port = flags.port, .token = token}, !port_is_given);
  if (!is_loopback(flags.address)) {
    fmt::print(
        stderr,
        "lockstep watch: served at {}, unencrypted: whoever sees the traffic sees the token. "
        "Prefer ssh -L\n",
        flags.address);
  }
  runs.follow();
  std::thread serving([&] { server->serve(); });
  fmt::print("{}\n", server->link());
  std::fflush(stdout);
  wait_for_the_end(signals.get(), flags.of_run);
  if (flags.of_run) {
    // Readers shall see how the run ended.
    runs.catch_up();
    const Deadline deadline = deadline_in(std::chrono::seconds(1));
    const std::uint64_t last = runs.version();
    while (server->readers_behind(last) > 0 && !has_passed(deadline)) ::poll(nullptr, 0, 10);
  }
  runs.stop();
  server->stop();
  serving.join();
}

}  // namespace

void add_watch(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("watch", "Serve a page that shows runs, live or finished");
  const auto flags = std::make_shared<WatchFlags>();
  command->add_option("path", flags->path, "A run's folder, or a folder with runs in it")
      ->type_name("RUN_OR_FOLDER")
      ->required();
  const CLI::Option* port =
      command
          ->add_option("--port", flags->port,
                       "Where to serve; 0: any free port. Without it 8080, or any if that is taken")
          ->check(CLI::Range(0, 65535))
          ->capture_default_str();
  command->add_option("--address", flags->address, "The address to serve at")
      ->capture_default_str();
  command
      ->add_option(
          "--token-file", flags->token_file,
          "A file with the token, made if it is not there; without it every link has a new "
          "one")
      ->type_name("FILE");
  command->add_flag("--of-run", flags->of_run)->group("");
  command->footer(kWatchFooter);
  command->callback([flags, port, &exit_code] {
    watch(*flags, port->count() > 0);
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
