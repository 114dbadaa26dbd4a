// A library that is loaded before others (LD_PRELOAD): while the file $CHAOS_TRIGGER exists,
// writing to regular files in the folder $CHAOS_FOLDER fails as on a faulty disk, with EIO.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool fails(int fd) {
  const char* const trigger = std::getenv("CHAOS_TRIGGER");
  const char* const folder = std::getenv("CHAOS_FOLDER");
  if (trigger == nullptr || folder == nullptr) return false;
  const int kept = errno;
  bool is_inside = false;
  struct stat status = {};
  if (::access(trigger, F_OK) == 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    char link[64];
    char path[4096];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(link, path, sizeof path - 1);
    const std::size_t prefix = std::strlen(folder);
    is_inside = length > static_cast<ssize_t>(prefix) && std::memcmp(path, folder, prefix) == 0 &&
                path[prefix] == '/';
  }
  errno = is_inside ? EIO : kept;
  return is_inside;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
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

}  // extern "C"
