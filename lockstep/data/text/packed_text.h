// Texts that are packed by gzip or zstd.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "lockstep/base/file/mapped_file.h"

namespace lockstep::data {

enum class Packing { kNone, kGzip, kZstd };

// By the first bytes of a file; names do not count.
Packing packing_of(std::string_view bytes);

// What `bytes` hold: one stream of that packing, or several, one after the other, as `cat a.gz
// b.gz` makes them. It goes into a file without a name, where temporary files go (TMPDIR), so that
// a text may be larger than memory. `source` is what errors call it. Throws Error(kProtocol) where
// the bytes are damaged or end early, and Error(kSystem) where the disk is full.
MappedFile unpack(std::string_view bytes, Packing packing, const std::filesystem::path& source);

}  // namespace lockstep::data
