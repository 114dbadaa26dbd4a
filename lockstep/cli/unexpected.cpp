#include "lockstep/cli/unexpected.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <string_view>
#include <system_error>

#include "lockstep/base/text/printable.h"
#include "lockstep/cli/usage_error.h"

namespace lockstep::cli {
namespace {

constexpr const char* kNoMemory =
    "there is not enough memory for this; choose smaller sizes, free some on this machine, or "
    "raise the limit (ulimit -v)";
constexpr const char* kNoThread =
    "a thread could not be started; is there a limit on memory (ulimit -v) or on processes "
    "(ulimit -u)?";

void say_at_the_end(std::string_view sentence) {
  // There may be no memory left to put them together.
  for (const std::string_view part :
       {std::string_view(kErrorPrefix), sentence, std::string_view("\n")}) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, part.data(), part.size());
  }
}

[[noreturn]] void on_terminate() {
  const std::exception_ptr thrown = std::current_exception();
  if (!thrown) {  // threads that run were left because of another that could not be started
    say_at_the_end(kNoThread);
    ::_exit(1);
  }
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    say_at_the_end(kNoMemory);
  } catch (const std::exception& error) {
    say_at_the_end(describe_unexpected(error));
  } catch (...) {
    say_at_the_end("ended by an exception of unknown kind");
  }
  ::_exit(1);
}

}  // namespace

std::string describe_unexpected(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return kNoMemory;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    if (system->code().value() == EAGAIN) return kNoThread;
    if (system->code().value() == ENOMEM) return kNoMemory;
  }
  return printable(error.what());
}

void end_in_sentences() {
  std::set_terminate(on_terminate);
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace lockstep::cli
