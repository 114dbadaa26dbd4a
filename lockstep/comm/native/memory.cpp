#include "lockstep/comm/native/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep {
namespace {

SharedMemory map(std::size_t bytes, int flags, int fd) {
  const std::size_t length = std::max<std::size_t>(bytes, 1);
  void* base = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) fail_errno(fmt::format("cannot map {} bytes of memory", bytes), errno);
  return {static_cast<std::byte*>(base), [length](std::byte* p) { ::munmap(p, length); }};
}

}  // namespace

SharedMemory map_private(std::size_t bytes) { return map(bytes, MAP_SHARED | MAP_ANONYMOUS, -1); }

UniqueFd make_memory_file(std::size_t bytes) {
  UniqueFd fd(::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail_errno("cannot make shared memory", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail_errno(fmt::format("cannot make {} bytes of shared memory", bytes), errno);
  }
  // From here on its size is fixed: no mapping of it can fault because someone shrank it.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail_errno("cannot seal shared memory", errno);
  }
  return fd;
}

SharedMemory map_file(int fd, std::size_t bytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_errno("cannot read the size of shared memory", errno);
  if (static_cast<std::size_t>(status.st_size) != bytes) {
    fail(ErrorCode::kProtocol, "shared memory has {} bytes where {} were expected", status.st_size,
         bytes);
  }
  return map(bytes, MAP_SHARED, fd);
}

}  // namespace lockstep
