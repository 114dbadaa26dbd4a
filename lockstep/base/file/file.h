// Writes files atomically, and reads whole files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Replaces the file at `path` by `text`, atomically: the text is written under another name and
// renamed. A reader, or a crash, finds the old file or the new one, never a part of either. A
// device or a pipe is written to directly; a symbolic link stays one. Throws Error(kSystem) on
// failure, and then nothing has changed.
void write_file(const std::filesystem::path& path, std::string_view text);
// Like write_file(), with the concatenation of `pieces`, which are not joined in memory.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces);

// A unique temporary name in the folder of `path`.
std::filesystem::path unfinished_name(const std::filesystem::path& path);

// Throws what write_file() would throw if the file cannot be created. Call it before long work
// whose result goes there. Changes nothing.
void check_can_write(const std::filesystem::path& path);

// All of a regular file (regular_file.h). Throws Error(kSystem) where it cannot be read, and
// Error(kInvalidArgument) where it is no file, or has more bytes than `most`: what is read whole is
// small, or is no such file.
std::string read_file(const std::filesystem::path& path, std::size_t most = std::size_t{1} << 30);

}  // namespace lockstep
