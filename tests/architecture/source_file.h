// Source files as the checks of the architecture see them.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/text/text.h"

namespace lockstep::architecture {

struct SourceFile {
  std::string path;  // from the root of the repository, "lockstep/base/error.h"
  std::string text;

  bool is_header() const { return path.ends_with(".h"); }
};

// Every C++ file under the folders of the repository that hold any.
inline std::vector<SourceFile> read_sources(const std::filesystem::path& root) {
  std::vector<SourceFile> files;
  for (const char* folder : {"lockstep", "tests", "microbench", "peers", "examples"}) {
    if (!std::filesystem::is_directory(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".inl" && extension != ".cu" &&
          extension != ".cuh") {
        continue;
      }
      std::ifstream stream(entry.path(), std::ios::binary);
      files.push_back({entry.path().lexically_relative(root),
                       {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()}});
    }
  }
  return files;
}

// The X of every #include directive that reads `open` X `close`.
inline std::vector<std::string> includes(const SourceFile& file, char open, char close) {
  std::vector<std::string> found;
  for (std::string_view line : split_text(file.text, '\n')) {
    line = trim(line);
    if (!line.starts_with('#')) continue;
    line = trim(line.substr(1));
    if (!line.starts_with("include")) continue;
    line = trim(line.substr(std::string_view("include").size()));
    if (!line.starts_with(open)) continue;
    line.remove_prefix(1);
    found.emplace_back(line.substr(0, line.find(close)));
  }
  return found;
}

inline std::vector<std::string> quoted_includes(const SourceFile& file) {
  return includes(file, '"', '"');
}
inline std::vector<std::string> angle_includes(const SourceFile& file) {
  return includes(file, '<', '>');
}

}  // namespace lockstep::architecture
