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

// A text in memory for as long as the object lives: a mapped file, or all of standard input.
class Text {
 public:
  virtual ~Text() = default;
  const std::filesystem::path& path() const { return path_; }
  std::string_view view() const { return view_; }

 protected:
  std::filesystem::path path_;
  std::string_view view_;
};

struct TextFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
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

std::shared_ptr<const Text> open_text(const TextFile& file);

// A hash of the names, sizes, modification times and contents of the files.
std::string text_files_hash(std::span<const TextFile> files);

}  // namespace lockstep::data
