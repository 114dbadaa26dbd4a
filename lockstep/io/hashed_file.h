// Files that are on the disk when they are said to be, and whose content can be told from a damaged
// one.
//
// The hash is XXH3 with 128 bits, as `xxh128sum` prints it. It finds damage; it is no proof against
// someone who means to deceive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

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

// Makes a file of a text and then the bytes of tensors, one after the other, and returns when it is
// on the disk; its entry in the folder is there after sync_folder(). Tensors may lie on any device;
// besides them it takes some MiB. Throws Error(kSystem) where it cannot be done, and where there is
// such a file already; what was written is then taken away.
FileHash write_synced(const std::filesystem::path& path, std::string_view text,
                      std::span<const Tensor> tensors = {});

// Brings names that were made, renamed and removed in a folder to the disk.
void sync_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
