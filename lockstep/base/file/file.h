// Files written whole or not at all, and read whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Puts `text` into the file at `path`, in place of what was there. A reader, or a crash, finds the
// old file or the new one, never a part of either: the text goes under another name first. What is
// no regular file (a device, a pipe) is written to as it is; a symbolic link stays one.
// Throws Error(kSystem) when it cannot be done, and then nothing has changed.
void write_file(const std::filesystem::path& path, std::string_view text);
// The same of many pieces, one after the other, without first putting them together in memory.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces);

// A name beside `path` for what is to take its place: no other writer has it.
std::filesystem::path unfinished_name(const std::filesystem::path& path);

// Throws what write_file() would where its file cannot be made: to be asked before long work whose
// result goes there. Changes nothing.
void check_can_write(const std::filesystem::path& path);

// All of a regular file (regular_file.h). Throws Error(kSystem) where it cannot be read, and
// Error(kInvalidArgument) where it is no file, or has more bytes than `most`: what is read whole is
// small, or is no such file.
std::string read_file(const std::filesystem::path& path, std::size_t most = std::size_t{1} << 30);

}  // namespace lockstep
