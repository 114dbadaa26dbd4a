#include "lockstep/base/file/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

AppendFile::AppendFile(std::filesystem::path path)
    : path_(std::move(path)),
      // Opening a pipe without a reader is an error; it does not wait for a reader.
      file_(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)) {
  if (!file_) fail_errno(fmt::format("cannot write {}", path_.string()), errno);
  set_nonblocking(file_.get(), false);
}

void AppendFile::append(std::string_view record) {
  ssize_t written;
  do {
    written = ::write(file_.get(), record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) fail_errno(fmt::format("cannot write to {}", path_.string()), errno);
  // A second write for the rest would split the record. Short writes happen only on a full disk.
  if (static_cast<std::size_t>(written) < record.size()) {
    fail(ErrorCode::kSystem,
         "cannot write to {}: only {} of {} bytes were written; is the disk full?", path_.string(),
         written, record.size());
  }
}

}  // namespace lockstep
