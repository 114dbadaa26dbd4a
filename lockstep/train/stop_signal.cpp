#include "lockstep/train/stop_signal.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

std::atomic<int> stop_signal_came{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler stores into it");

// As shells have it for a process that a signal ended.
constexpr int kSignalExit = 128;

// On a terminal it takes the place of the progress line.
constexpr std::string_view kTold =
    "lockstep: finishing the step, then saving; Ctrl-C ends it now\n";
constexpr std::string_view kToldTerminal =
    "\r\x1b[Klockstep: finishing the step, then saving; Ctrl-C ends it now\r\n";
std::string_view words_for_stop;

// What to exit with at once; 0: the signal is a wish.
std::atomic<int> exit_in_start_up{0};
std::atomic<bool> tells_in_start_up{false};
constexpr std::string_view kToldInStartUp = "lockstep: ended before the first step, as asked\n";

// How long code that ignores a stop signal may continue, and how often that is checked.
constexpr std::chrono::milliseconds kGraceOfStop{400};
constexpr std::chrono::milliseconds kBetweenLooks{50};

void on_stop_signal(int signal) {
  if (const int code = exit_in_start_up; code != 0) {
    if (tells_in_start_up && signal != SIGPIPE) {
      [[maybe_unused]] const auto written =
          ::write(STDERR_FILENO, kToldInStartUp.data(), kToldInStartUp.size());
    }
    ::_exit(code);
  }
  const int earlier = stop_signal_came.exchange(signal);
  if (earlier != 0 && signal == SIGINT) ::_exit(kSignalExit + SIGINT);
  if (earlier != 0 || signal == SIGPIPE || words_for_stop.empty()) return;
  const int kept = errno;
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, words_for_stop.data(), words_for_stop.size());
  errno = kept;
}

}  // namespace

StopSignal::StopSignal(bool tells) {
  stop_signal_came = 0;
  words_for_stop = {};
  if (tells) words_for_stop = ::isatty(STDERR_FILENO) == 1 ? kToldTerminal : kTold;
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (::sigaction(kSignals[i], nullptr, &before_[i]) != 0) {
      fail_errno("cannot watch for signals", errno);
    }
    const bool outlived = kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN;
    if (!outlived) ::sigaction(kSignals[i], &action, nullptr);
  }
  // A launcher may have held them until now.
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : kSignals) sigaddset(&held, signal);
  ::sigprocmask(SIG_UNBLOCK, &held, nullptr);
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopSignal::came() const { return stop_signal_came.load() != 0; }

const char* StopSignal::name() const {
  switch (stop_signal_came.load()) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    case SIGPIPE:
      return "SIGPIPE";
    default:
      return "";
  }
}

StartUp::StartUp(const StopSignal& signals, int exit_code, bool tells) {
  tells_in_start_up = tells;
  exit_in_start_up = exit_code;
  if (signals.came()) ::raise(SIGTERM);  // between the two
}

StartUp::~StartUp() { exit_in_start_up = 0; }

StopDeadline::StopDeadline(const StopSignal& signals, int exit_code, std::function<void()> clean_up)
    : signals_(signals),
      exit_code_(exit_code),
      clean_up_(std::move(clean_up)),
      thread_([this] { watch(); }) {}

StopDeadline::~StopDeadline() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void StopDeadline::watch() {
  std::unique_lock lock(mutex_);
  // Polls, because a signal handler cannot wake a thread.
  while (!signals_.came()) {
    if (ended_.wait_for(lock, kBetweenLooks, [this] { return has_ended_; })) return;
  }
  if (ended_.wait_for(lock, kGraceOfStop, [this] { return has_ended_; })) return;
  clean_up_();
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, kToldInStartUp.data(), kToldInStartUp.size());
  ::_exit(exit_code_);
}

}  // namespace lockstep::train
