#include "lockstep/data/text/packed_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kUnpackBlock = std::size_t{1} << 20;

[[noreturn]] void fail_damaged(const fs::path& source, std::string_view packing,
                               std::string_view why) {
  fail(ErrorCode::kProtocol, "{} cannot be unpacked ({}): {}", source.string(), packing, why);
}

// Grows at its end, and goes with its descriptor.
class NamelessFile {
 public:
  NamelessFile() {
    std::error_code error;
    const fs::path folder = fs::temp_directory_path(error);
    if (error) fail_errno("there is no folder for temporary files (TMPDIR)", error.value());
    folder_ = folder.string();
    file_ = UniqueFd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file_) return;
    // Not every file system has nameless files.
    std::string name = (folder / "lockstep-text-XXXXXX").string();
    file_ = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
    if (!file_) fail_errno(fmt::format("cannot make a temporary file in {}", folder_), errno);
    ::unlink(name.c_str());
  }

  void append(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        fail_errno(
            fmt::format("cannot unpack a text into {} (TMPDIR names another folder)", folder_),
            errno);
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  MappedFile mapped() const { return MappedFile(fmt::format("/proc/self/fd/{}", file_.get())); }

 private:
  std::string folder_;
  UniqueFd file_;
};

void unpack_gzip(std::string_view bytes, NamelessFile& to, const fs::path& source) {
  struct Inflating : z_stream {
    Inflating() : z_stream{} {
      constexpr int kGzipWindow = 15 + 16;  // the largest, in gzip's format
      if (::inflateInit2(this, kGzipWindow) != Z_OK) throw std::bad_alloc();
    }
    ~Inflating() { ::inflateEnd(this); }
    Inflating(const Inflating&) = delete;
    Inflating& operator=(const Inflating&) = delete;
  } stream;
  std::vector<char> block(kUnpackBlock);
  bool ended = false;
  while (!ended || !bytes.empty()) {
    // Tapes and block devices fill up with zeros.
    if (ended && bytes.find_first_not_of('\0') == std::string_view::npos) return;
    if (ended) ::inflateReset(&stream);
    const std::size_t offered =
        std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    const int status = ::inflate(&stream, Z_NO_FLUSH);
    const bool starved = status == Z_BUF_ERROR && stream.avail_in == 0;
    if (starved) fail_damaged(source, "gzip", "it ends early");
    if (status != Z_OK && status != Z_STREAM_END) {
      fail_damaged(source, "gzip", stream.msg != nullptr ? stream.msg : "it is damaged");
    }
    to.append(std::span(block).first(block.size() - stream.avail_out));
    bytes.remove_prefix(offered - stream.avail_in);
    ended = status == Z_STREAM_END;
  }
}

void unpack_zstd(std::string_view bytes, NamelessFile& to, const fs::path& source) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(::ZSTD_createDCtx(),
                                                                        ::ZSTD_freeDCtx);
  if (context == nullptr) throw std::bad_alloc();
  // Windows of zstd --long=31, the longest there is.
  ::ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, 31);
  std::vector<char> block(kUnpackBlock);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  std::size_t status = 0;
  bool filled = false;  // all of the block: more may be waiting
  while (in.pos < in.size || (filled && status != 0)) {
    ZSTD_outBuffer out{block.data(), block.size(), 0};
    status = ::ZSTD_decompressStream(context.get(), &out, &in);
    if (::ZSTD_isError(status) != 0) fail_damaged(source, "zstd", ::ZSTD_getErrorName(status));
    to.append(std::span(block).first(out.pos));
    filled = out.pos == out.size;
  }
  if (status != 0) fail_damaged(source, "zstd", "it ends early");
}

}  // namespace

Packing packing_of(std::string_view bytes) {
  if (bytes.starts_with("\x1f\x8b\x08")) return Packing::kGzip;
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return Packing::kZstd;
  return Packing::kNone;
}

MappedFile unpack(std::string_view bytes, Packing packing, const fs::path& source) {
  NamelessFile file;
  if (packing == Packing::kGzip) {
    unpack_gzip(bytes, file, source);
  } else {
    unpack_zstd(bytes, file, source);
  }
  return file.mapped();
}

}  // namespace lockstep::data
