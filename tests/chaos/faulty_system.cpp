// A library that is loaded before others (LD_PRELOAD) and makes the system faulty. Files beside the
// folder $CHAOS_FOLDER, with its name and an extension, say how:
//
//   .eio    while it exists, writing to regular files in the folder fails as on a faulty disk
//   .flip   what is received over TCP next has one changed bit; the file is then removed
//   .clock  seconds by which the clock of the day is ahead
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

class KeptErrno {
 public:
  ~KeptErrno() { errno = number_; }

 private:
  int number_ = errno;
};

struct Trigger {
  explicit Trigger(const char* of) {
    const char* const folder = std::getenv("CHAOS_FOLDER");
    if (folder != nullptr) std::snprintf(path, sizeof path, "%s.%s", folder, of);
  }
  bool is_there() const { return path[0] != '\0' && ::access(path, F_OK) == 0; }

  char path[4096] = "";
};

// ---- the disk

bool is_inside(int fd) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const char* const folder = std::getenv("CHAOS_FOLDER");
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  const std::size_t prefix = std::strlen(folder);
  return length > static_cast<ssize_t>(prefix) && std::memcmp(path, folder, prefix) == 0 &&
         path[prefix] == '/';
}

bool fails(int fd) {
  {
    const KeptErrno kept;
    if (!Trigger("eio").is_there() || !is_inside(fd)) return false;
  }
  errno = EIO;
  return true;
}

// ---- the network

bool is_tcp(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  return address.ss_family == AF_INET || address.ss_family == AF_INET6;
}

// A bit in the middle of what came.
void flip(int fd, void* data, std::size_t size) {
  const KeptErrno kept;
  const Trigger trigger("flip");
  if (size == 0 || !trigger.is_there() || !is_tcp(fd)) return;
  if (::unlink(trigger.path) != 0) return;  // another process was first
  static_cast<unsigned char*>(data)[size / 2] ^= 1u << size % 8;
}

// ---- the clock

long seconds_ahead() {
  const KeptErrno kept;
  const Trigger trigger("clock");
  if (trigger.path[0] == '\0') return 0;
  const int fd = ::open(trigger.path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[32] = "";
  const ssize_t size = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  return size > 0 ? std::atol(text) : 0;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, std::size_t size) {
  static auto* const original = next<ssize_t(int, const void*, std::size_t)>("write");
  return fails(fd) ? -1 : original(fd, data, size);
}

ssize_t pwrite(int fd, const void* data, std::size_t size, off_t offset) {
  static auto* const original = next<ssize_t(int, const void*, std::size_t, off_t)>("pwrite");
  return fails(fd) ? -1 : original(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void* data, std::size_t size, off64_t offset) {
  static auto* const original = next<ssize_t(int, const void*, std::size_t, off64_t)>("pwrite64");
  return fails(fd) ? -1 : original(fd, data, size, offset);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  static auto* const original = next<ssize_t(int, const iovec*, int)>("writev");
  return fails(fd) ? -1 : original(fd, parts, count);
}

int fsync(int fd) {
  static auto* const original = next<int(int)>("fsync");
  return fails(fd) ? -1 : original(fd);
}

int fdatasync(int fd) {
  static auto* const original = next<int(int)>("fdatasync");
  return fails(fd) ? -1 : original(fd);
}

ssize_t recv(int fd, void* data, std::size_t size, int flags) {
  static auto* const original = next<ssize_t(int, void*, std::size_t, int)>("recv");
  const ssize_t got = original(fd, data, size, flags);
  if (got > 0 && (flags & MSG_PEEK) == 0) flip(fd, data, static_cast<std::size_t>(got));
  return got;
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const original = next<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t got = original(fd, message, flags);
  if (got <= 0 || (flags & MSG_PEEK) != 0) return got;
  auto left = static_cast<std::size_t>(got);
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    const iovec& part = message->msg_iov[i];
    const std::size_t here = left < part.iov_len ? left : part.iov_len;
    flip(fd, part.iov_base, here);
    left -= here;
  }
  return got;
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static auto* const original = next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = original(clock, time);
  const bool is_of_the_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && is_of_the_day) time->tv_sec += seconds_ahead();
  return result;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  static auto* const original = next<int(timeval*, void*)>("gettimeofday");
  const int result = original(time, zone);
  if (result == 0) time->tv_sec += seconds_ahead();
  return result;
}

time_t time(time_t* result) noexcept {
  static auto* const original = next<time_t(time_t*)>("time");
  const time_t now = original(nullptr) + seconds_ahead();
  if (result != nullptr) *result = now;
  return now;
}

}  // extern "C"
