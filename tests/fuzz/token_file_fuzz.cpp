// Token files whose bytes lie. An input is a file, or, behind "PAIR" and a length of 2 bytes, an
// .idx of that length and its .bin.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/data/token_file/token_file.h"

namespace {

namespace fs = std::filesystem;
using lockstep::data::TokenFile;

constexpr std::string_view kPair = "PAIR";
constexpr std::uint64_t kMostRead = 4096;

// x.bin and x.idx, which lead to files that have no name: writing those is quick.
class Files {
 public:
  Files() {
    fs::create_symlink("/proc/self/fd/" + std::to_string(bin_.get()), bin());
    fs::create_symlink("/proc/self/fd/" + std::to_string(idx_.get()), folder_.path() / "x.idx");
  }

  fs::path bin() const { return folder_.path() / "x.bin"; }
  void put(std::string_view bin, std::string_view idx) const {
    replace(bin_.get(), bin);
    replace(idx_.get(), idx);
  }

 private:
  static void replace(int file, std::string_view bytes) {
    const auto size = static_cast<ssize_t>(bytes.size());
    if (::ftruncate(file, 0) != 0 || ::pwrite(file, bytes.data(), bytes.size(), 0) != size) {
      std::abort();
    }
  }

  lockstep::UniqueFd bin_{::memfd_create("bin", MFD_CLOEXEC)};
  lockstep::UniqueFd idx_{::memfd_create("idx", MFD_CLOEXEC)};
  lockstep::ScratchFolder folder_;
};

void read_everything(const fs::path& path) {
  const TokenFile file(path);
  std::vector<lockstep::data::TokenId> ids(std::min(file.size(), kMostRead));
  for (std::uint64_t i = 0; i < std::min(file.documents(), kMostRead); ++i) {
    try {
      const TokenFile::Document document = file.document(i);
      if (document.first > document.end || document.end > file.size()) std::abort();
    } catch (const lockstep::Error&) {
    }
  }
  file.read(file.size() - ids.size(), ids, 50257);
  for (const auto id : ids) {
    if (id < 0 || id >= 50257) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Files files;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string_view index;
  if (bytes.starts_with(kPair) && size >= kPair.size() + 2) {
    std::uint16_t length = 0;
    std::memcpy(&length, data + kPair.size(), 2);
    bytes.remove_prefix(kPair.size() + 2);
    index = bytes.substr(0, length);
    bytes.remove_prefix(index.size());
  }
  files.put(bytes, index);
  try {
    read_everything(files.bin());
  } catch (const lockstep::Error&) {
  }
  return 0;
}
