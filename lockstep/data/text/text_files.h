// The texts that a path stands for.
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

// Folders that hold no texts whatever is in them, and what a person calls them: "a run's folder".
struct NoTexts {
  std::string name;
  std::function<bool(const std::filesystem::path& folder)> are_in;
};

// Files as they are, standard input for "-", and of folders all files in them and in their folders,
// by name in the order of bytes. Hidden ones (.name) in folders are left out, and folders that
// `none` names. Standard input is read to its end. Throws Error(kInvalidArgument) for a path that
// is none of these or that `none` names, and where there is not a single byte of text in all of
// them.
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
