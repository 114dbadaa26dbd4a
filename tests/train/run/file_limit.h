// A disk that is full.
#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace lockstep::train {

// Limits the size of this process's files, as a full disk does.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

}  // namespace lockstep::train
