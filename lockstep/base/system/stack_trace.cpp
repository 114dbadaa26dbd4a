#include "lockstep/base/system/stack_trace.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace lockstep {
namespace {

constexpr int kMostFrames = 64;
// A handler reads it.
std::string& stack_title() {
  static std::string title;
  return title;
}

void print_stack(int) {
  const int kept = errno;
  std::array<void*, kMostFrames> frames;
  const int count = ::backtrace(frames.data(), kMostFrames);
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, stack_title().data(), stack_title().size());
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  errno = kept;
}

}  // namespace

int stack_signal() { return SIGRTMIN + 1; }

void print_stack_on_signal(const std::string& title) {
  stack_title() = title + "\n";
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads what a handler must not
  struct sigaction action {};
  action.sa_handler = print_stack;
  action.sa_flags = SA_RESTART;
  ::sigaction(stack_signal(), &action, nullptr);
}

}  // namespace lockstep
