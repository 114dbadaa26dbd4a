#include "lockstep/io/hashed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <future>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/regular_file.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

// So large that beginning a thread for one costs nothing.
constexpr std::size_t kBlock = std::size_t{16} << 20;

[[noreturn]] void fail_with_errno(std::string_view what, const fs::path& path) {
  fail_errno(fmt::format("cannot {} {}", what, path.string()), errno);
}

}  // namespace

SyncedFile::SyncedFile(const fs::path& path)
    : path_(path), file_(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666)) {
  if (!file_) fail_with_errno("write", path);
}

SyncedFile::~SyncedFile() {
  if (file_ && !finished_) ::unlink(path_.c_str());
}

void SyncedFile::write(std::string_view text) { write_bytes(std::as_bytes(std::span(text))); }

void SyncedFile::write(const Tensor& tensor) {
  if (tensor.device() == Device{}) {
    write_bytes(Bytes(tensor.data(), tensor.bytes()));
    return;
  }
  const auto elements = static_cast<std::int64_t>(tensor.elements());
  const auto most = std::min(static_cast<std::int64_t>(kBlock / size_of(tensor.dtype())), elements);
  const Tensor flat = tensor.reshaped({elements});
  const Buffer staging(static_cast<std::size_t>(most) * size_of(tensor.dtype()));
  for (std::int64_t first = 0; first < elements; first += most) {
    const Tensor part = flat.slice(first, std::min(most, elements - first));
    const Tensor staged = staging.tensor(part.dtype(), part.shape());
    copy(staged, part);
    write_bytes(Bytes(staged.data(), staged.bytes()));
  }
}

void SyncedFile::write_bytes(Bytes bytes) {
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) {
    const Bytes block = bytes.first(kBlock);
    const auto hashing = std::async(std::launch::async, [&] { hash_.add(block); });
    write_out(block);
    // The disk begins now, not only with fsync(). A hint: its failure means nothing.
    ::sync_file_range(file_.get(), static_cast<off_t>(written_ - kBlock),
                      static_cast<off_t>(kBlock), SYNC_FILE_RANGE_WRITE);
  }
  hash_.add(bytes);
  write_out(bytes);
}

void SyncedFile::write_out(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_with_errno("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    written_ += static_cast<std::uint64_t>(count);
  }
}

FileHash SyncedFile::finish() {
  if (::fsync(file_.get()) != 0) fail_with_errno("write", path_);
  if (::close(file_.release()) != 0) {
    const int error = errno;
    ::unlink(path_.c_str());
    errno = error;
    fail_with_errno("write", path_);
  }
  finished_ = true;
  return {.bytes = written_, .hash = hash_.hex()};
}

FileHash hash_of(std::string_view text) {
  return {.bytes = text.size(), .hash = content_hash(text)};
}

FileHash hash_of_file(const fs::path& path) {
  const auto [file, size] = open_regular(path);  // the size is a hint: it is read to its end
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  ContentHash hash;
  std::uint64_t bytes = 0;
  std::vector<std::byte> block(std::clamp<std::size_t>(size, 4096, kBlock / 4));
  for (;;) {
    const ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_with_errno("read", path);
    if (count == 0) return {.bytes = bytes, .hash = hash.hex()};
    hash.add(Bytes(block).first(static_cast<std::size_t>(count)));
    bytes += static_cast<std::uint64_t>(count);
  }
}

FileHash write_synced(const fs::path& path, std::string_view text,
                      std::span<const Tensor> tensors) {
  SyncedFile file(path);
  file.write(text);
  for (const Tensor& tensor : tensors) file.write(tensor);
  return file.finish();
}

void sync_folder(const fs::path& folder) {
  const UniqueFd file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: a file system that has nothing to sync there.
  if (!file || (::fsync(file.get()) != 0 && errno != EINVAL)) fail_with_errno("sync", folder);
}

}  // namespace lockstep::io
