#include "lockstep/comm/unheard.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "lockstep/base/log.h"

namespace lockstep {
namespace {

constexpr int kFailure = 1;

// The end of exit(): nothing but buffers of stdio is left to be written.
void fail_process() {
  std::fflush(nullptr);
  ::_exit(kFailure);
}

}  // namespace

void report_unheard(const Error& error) {
  log_error("{}", error.what());
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(fail_process); });
}

}  // namespace lockstep
