#include "lockstep/base/file/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0 && fd_ != fd) ::close(fd_);
  fd_ = fd;
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno("cannot make a pipe", errno);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void set_nonblocking(int fd, bool nonblocking) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) fail_errno("cannot read the flags of a descriptor", errno);
  const int wanted = nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  if (wanted != flags && ::fcntl(fd, F_SETFL, wanted) != 0) {
    fail_errno("cannot set the flags of a descriptor", errno);
  }
}

}  // namespace lockstep
