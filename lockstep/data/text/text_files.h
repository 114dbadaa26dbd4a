// Lists and reads text files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

// A text in memory for as long as the object lives: a mapped file, what a packed one holds, or all
// of standard input.
class Text {
 public:
  virtual ~Text() = default;
  const std::filesystem::path& path() const { return path_; }
  std::string_view view() const { return view_; }
  // Throws Error(kProtocol) where the file became shorter meanwhile, and what was read is not what
  // was there.
  virtual void check_whole() const {}

 protected:
  std::filesystem::path path_;
  std::string_view view_;
};

struct TextFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;           // of the file
  std::shared_ptr<const Text> text;  // of standard input, which can be read only once
};

// Folders that are skipped, and their name in messages: "a run's folder".
struct NoTexts {
  std::string name;
  std::function<bool(const std::filesystem::path& folder)> are_in;
};

// The files of `paths`: files, standard input ("-", read to its end), and folders recursively,
// sorted by name. Hidden files (.name) in folders and folders of `none` are skipped. Throws
// Error(kInvalidArgument) for other paths, for paths of `none`, and if there is no text at all.
std::vector<TextFile> list_text_files(std::span<const std::filesystem::path> paths,
                                      const NoTexts& none = {});

// What is packed by gzip or zstd comes unpacked (packed_text.h). Throws Error(kInvalidArgument) for
// what is no text (text_kind.h).
std::shared_ptr<const Text> open_text(const TextFile& file);

// The same files with the packed ones unpacked, so that `bytes` are those of their texts.
std::vector<TextFile> unpack_texts(std::vector<TextFile> files);

// One number for names, sizes, times of change and contents of all of these files: equal where none
// of them has changed.
std::string text_files_hash(std::span<const TextFile> files);

}  // namespace lockstep::data
