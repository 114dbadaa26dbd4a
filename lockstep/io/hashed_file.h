// Files that are synced to the disk and hashed, so that damage can be detected.
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

// A new file that is hashed while it is written, and removed unless finish() is called. All
// functions throw Error(kSystem) on failure, the constructor also if the file exists.
class SyncedFile {
 public:
  explicit SyncedFile(const std::filesystem::path& path);
  ~SyncedFile();
  SyncedFile(const SyncedFile&) = delete;
  SyncedFile& operator=(const SyncedFile&) = delete;

  void write(std::string_view text);
  // Writes the bytes of a tensor on any device, in pieces.
  void write(const Tensor& tensor);
  // Returns when the content is on the disk; sync_folder() syncs the name.
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

// Syncs created, renamed and removed names of a folder to the disk.
void sync_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
