#include "lockstep/io/hashed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <future>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fd.h"
#include "lockstep/base/hex.h"
#include "lockstep/tensor/buffer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

// So large that beginning a thread for one costs nothing.
constexpr std::size_t kBlock = std::size_t{16} << 20;

class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(&state_); }

  void add(Bytes bytes) {
    XXH3_128bits_update(&state_, bytes.data(), bytes.size());
    bytes_ += bytes.size();
  }

  FileHash result() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_));
    return {.bytes = bytes_, .hash = to_hex(std::as_bytes(std::span(canonical.digest)))};
  }

 private:
  XXH3_state_t state_;
  std::uint64_t bytes_ = 0;
};

[[noreturn]] void fail_with_errno(std::string_view what, const fs::path& path) {
  fail_errno(fmt::format("cannot {} {}", what, path.string()), errno);
}

// A new file, which is taken away again unless it is finished.
class SyncedFile {
 public:
  explicit SyncedFile(const fs::path& path)
      : path_(path), file_(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666)) {
    if (!file_) fail_with_errno("write", path);
  }
  ~SyncedFile() {
    if (!finished_) ::unlink(path_.c_str());
  }
  SyncedFile(const SyncedFile&) = delete;
  SyncedFile& operator=(const SyncedFile&) = delete;

  void write(Bytes bytes) {
    for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) {
      const Bytes block = bytes.first(kBlock);
      const auto hashing = std::async(std::launch::async, [&] { hasher_.add(block); });
      write_out(block);
      // The disk begins now, not only with fsync(). A hint: its failure means nothing.
      ::sync_file_range(file_.get(), written_ - static_cast<off_t>(kBlock),
                        static_cast<off_t>(kBlock), SYNC_FILE_RANGE_WRITE);
    }
    hasher_.add(bytes);
    write_out(bytes);
  }

  FileHash finish() {
    if (::fsync(file_.get()) != 0 || ::close(file_.release()) != 0) fail_with_errno("write", path_);
    finished_ = true;
    return hasher_.result();
  }

 private:
  void write_out(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_with_errno("write", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      written_ += count;
    }
  }

  fs::path path_;
  UniqueFd file_;
  off_t written_ = 0;
  bool finished_ = false;
  Hasher hasher_;
};

void write_tensor(SyncedFile& file, const Tensor& tensor) {
  if (tensor.device() == Device{}) {
    file.write({tensor.data(), tensor.bytes()});
    return;
  }
  const auto elements = static_cast<std::int64_t>(tensor.elements());
  const auto most = std::min(static_cast<std::int64_t>(kBlock / size_of(tensor.dtype())), elements);
  const Tensor row = tensor.reshaped({elements});
  const Buffer staging(static_cast<std::size_t>(most) * size_of(tensor.dtype()));
  for (std::int64_t first = 0; first < elements; first += most) {
    const Tensor part = row.slice(first, std::min(most, elements - first));
    const Tensor staged = staging.tensor(part.dtype(), part.shape());
    copy(staged, part);
    file.write({staged.data(), staged.bytes()});
  }
}

}  // namespace

FileHash hash_of(std::string_view text) {
  Hasher hasher;
  hasher.add(std::as_bytes(std::span(text)));
  return hasher.result();
}

FileHash hash_of_file(const fs::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail_with_errno("open", path);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  Hasher hasher;
  std::vector<std::byte> block(kBlock / 4);
  for (;;) {
    const ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_with_errno("read", path);
    if (count == 0) return hasher.result();
    hasher.add(Bytes(block).first(static_cast<std::size_t>(count)));
  }
}

FileHash write_synced(const fs::path& path, std::string_view text,
                      std::span<const Tensor> tensors) {
  SyncedFile file(path);
  file.write(std::as_bytes(std::span(text)));
  for (const Tensor& tensor : tensors) write_tensor(file, tensor);
  return file.finish();
}

void sync_folder(const fs::path& folder) {
  const UniqueFd file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: a file system that has nothing to sync there.
  if (!file || (::fsync(file.get()) != 0 && errno != EINVAL)) fail_with_errno("sync", folder);
}

}  // namespace lockstep::io
