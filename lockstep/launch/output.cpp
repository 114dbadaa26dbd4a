#include "lockstep/launch/output.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/base/system/deadline.h"

namespace lockstep {

void LineCutter::feed(std::string_view bytes, const Emit& emit) {
  while (!bytes.empty()) {
    const std::size_t space_left = kLongestLine - line_.size();
    const auto newline = bytes.substr(0, space_left + 1).find('\n');
    const bool is_whole = newline != std::string_view::npos;
    const std::size_t taken = is_whole ? newline : std::min(space_left, bytes.size());
    line_ += bytes.substr(0, taken);
    bytes.remove_prefix(is_whole ? taken + 1 : taken);
    if (is_whole || (line_.size() == kLongestLine && !bytes.empty())) {
      emit(line_);
      line_.clear();
    }
  }
}

void LineCutter::finish(const Emit& emit) {
  if (!line_.empty()) emit(line_);
  line_.clear();
}

void OutputPort::put_line(std::string_view prefix, std::string_view line) {
  pending_ += prefix;
  pending_ += line;
  pending_ += '\n';
}

bool OutputPort::flush() {
  // A pipe that poll() calls writable takes PIPE_BUF bytes at once. O_NONBLOCK would do, too, but
  // it would also change the descriptors of whoever shares this pipe or terminal with us.
  while (pending() > 0 && wait_for_fd(fd_, POLLOUT, Deadline::min())) {
    const std::size_t count = std::min<std::size_t>(pending(), PIPE_BUF);
    const ssize_t done = ::write(fd_, pending_.data() + written_, count);
    if (done >= 0) {
      written_ += static_cast<std::size_t>(done);
    } else if (errno != EINTR && errno != EAGAIN) {
      return false;
    }
  }
  if (pending() == 0) discard();
  if (written_ > pending_.size() / 2) {
    pending_.erase(0, written_);
    written_ = 0;
  }
  return true;
}

void OutputPort::discard() {
  pending_.clear();
  written_ = 0;
}

bool lead_to_the_same(int fd, int other_fd) {
  struct stat a {};
  struct stat b {};
  return ::fstat(fd, &a) == 0 && ::fstat(other_fd, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace lockstep
