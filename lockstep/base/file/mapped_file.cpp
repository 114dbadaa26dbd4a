#include "lockstep/base/file/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"

namespace lockstep {

MappedFile::MappedFile(const std::filesystem::path& path) {
  // A pipe that nobody writes to must not make us wait before we can refuse it.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail_errno(fmt::format("cannot open {}", path.string()), errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    fail_errno(fmt::format("cannot read {}", path.string()), errno);
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, where a file was expected", path.string(),
         S_ISDIR(status.st_mode) ? "a folder" : "not a regular file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) fail_errno(fmt::format("cannot map {}", path.string()), errno);
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace lockstep
