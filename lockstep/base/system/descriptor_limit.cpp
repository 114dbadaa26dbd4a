#include "lockstep/base/system/descriptor_limit.h"

#include <sys/resource.h>

#include <atomic>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::mutex limit_mutex;
// 0: it was not raised.
std::atomic<rlim_t> soft_limit_at_start{0};

}  // namespace

std::size_t raise_descriptor_limit() {
  const std::lock_guard lock(limit_mutex);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    fail_errno("cannot read the limit of descriptors", errno);
  }
  if (limit.rlim_cur < limit.rlim_max) {
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // A hard limit above what the kernel gives at all cannot be had; then it stays as it was.
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return before;
    soft_limit_at_start = before;
  }
  return limit.rlim_cur;
}

void restore_descriptor_limit() {
  const rlim_t before = soft_limit_at_start;
  rlimit limit{};
  if (before == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = before;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void expect_descriptors(std::size_t needed, std::string_view who) {
  const std::size_t limit = raise_descriptor_limit();
  if (limit >= needed) return;
  fail(ErrorCode::kSystem,
       "{} needs up to {} open descriptors, and a process may have {} here; raise the hard limit "
       "(ulimit -Hn, LimitNOFILE of systemd, --ulimit nofile of Docker), or start fewer ranks",
       who, needed, limit);
}

}  // namespace lockstep
