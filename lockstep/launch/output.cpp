#include "lockstep/launch/output.h"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/base/system/deadline.h"

namespace lockstep {

namespace {

// A full disk, a quota or a limit of a file's size, or a disk that fails: training continues
// without its log.
bool finds_no_room(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO;
}

}  // namespace

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
  if (lost_ > 0 && pending_.empty()) {
    pending_ = fmt::format("{}lockstep: {} lines of output are missing here: they found no room\n",
                           torn_ ? "\n" : "", lost_);
    note_end_ = pending_.size();
  }
  constexpr std::string_view kEraseLine = "\r\x1b[K";
  if (std::exchange(is_live_, false)) pending_ += kEraseLine;
  pending_ += prefix;
  pending_ += line;
  pending_ += '\n';
}

void OutputPort::put_live(std::string_view text) {
  pending_ += text;
  is_live_ = true;
}

bool OutputPort::flush() {
  // A pipe that poll() calls writable takes PIPE_BUF bytes at once. O_NONBLOCK would also change
  // the descriptors of other processes that share this pipe or terminal.
  while (pending() > 0 && wait_for_fd(fd_, POLLOUT, Deadline::min())) {
    const std::size_t count = std::min<std::size_t>(pending(), PIPE_BUF);
    const ssize_t done = ::write(fd_, pending_.data() + written_, count);
    if (done >= 0) {
      written_ += static_cast<std::size_t>(done);
    } else if (finds_no_room(errno)) {
      drop();
    } else if (errno != EINTR && errno != EAGAIN) {
      return false;
    }
    if (note_end_ > 0 && written_ >= note_end_) lost_ = note_end_ = 0;
  }
  if (pending() == 0) discard();
  if (written_ > pending_.size() / 2) {
    pending_.erase(0, written_);
    note_end_ -= std::min(note_end_, written_);
    written_ = 0;
  }
  return true;
}

void OutputPort::drop() {
  const auto rest = pending_.begin() + static_cast<std::ptrdiff_t>(written_);
  torn_ = written_ > 0 ? pending_[written_ - 1] != '\n' : torn_ && note_end_ > 0;
  // A note that was not written is written again, with a larger number.
  const auto lines = pending_.begin() + static_cast<std::ptrdiff_t>(std::max(written_, note_end_));
  lost_ += static_cast<std::size_t>(std::count(std::max(rest, lines), pending_.end(), '\n'));
  discard();
}

void OutputPort::discard() {
  pending_.clear();
  written_ = 0;
  note_end_ = 0;
}

bool lead_to_the_same(int fd, int other_fd) {
  struct stat a {};
  struct stat b {};
  return ::fstat(fd, &a) == 0 && ::fstat(other_fd, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace lockstep
