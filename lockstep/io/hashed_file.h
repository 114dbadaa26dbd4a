// Files that are on the disk when they are said to be, and whose content can be told from a damaged
// one.
//
// Hashes are those of base/file/content_hash.h, as `xxh128sum` prints them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::io {

struct FileHash {
  std::uint64_t bytes = 0;
  std::string hash;  // 32 hexadecimal digits, lower case
  friend bool operator==(const FileHash&, const FileHash&) = default;
};

FileHash hash_of(std::string_view text);
// Reads the whole file. Throws Error(kSystem) where that cannot be done.
FileHash hash_of_file(const std::filesystem::path& path);

// A new file that is hashed while it is written, and taken away again unless it is finished. All of
// it throws Error(kSystem) where it cannot be done, the constructor also where there is such a file
// already.
class SyncedFile {
 public:
  explicit SyncedFile(const std::filesystem::path& path);
  ~SyncedFile();
  SyncedFile(const SyncedFile&) = delete;
  SyncedFile& operator=(const SyncedFile&) = delete;

  void write(std::string_view text);
  // Its bytes, from any device, without a copy of all of them.
  void write(const Tensor& tensor);
  // Returns when the content is on the disk; the name is after sync_folder().
  FileHash finish();

 private:
  void write_bytes(std::span<const std::byte> bytes);
  void write_out(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  UniqueFd file_;
  std::uint64_t written_ = 0;
  bool finished_ = false;
  ContentHash hash_;
};

// A whole SyncedFile of a text and then tensors.
FileHash write_synced(const std::filesystem::path& path, std::string_view text,
                      std::span<const Tensor> tensors = {});

// Brings names that were made, renamed and removed in a folder to the disk.
void sync_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
