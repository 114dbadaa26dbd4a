// Checks that keep files pleasant to open, and headers usable where the library is installed.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "tests/architecture/source_file.h"

namespace lockstep::architecture {

inline constexpr std::size_t kMostLines = 500;
// How a file begins that a program has written; nobody reads it.
inline constexpr std::string_view kWrittenBy = "// Written by ";

// Libraries that sources use and installed headers hide.
inline constexpr std::string_view kPrivateLibraries[] = {
    "spdlog/", "toml++/", "nlohmann/", "openssl/", "CLI/", "mpi.h", "oneapi/", "httplib.h"};

// Whether the file, comments aside, calls exit(): the plain one, not _exit() of a forked child nor
// some object's method.
inline bool calls_exit(const SourceFile& file) {
  constexpr std::string_view kCall = "exit(";
  for (std::string_view line : split_text(file.text, '\n')) {
    line = line.substr(0, line.find("//"));
    for (auto at = line.find(kCall); at != std::string_view::npos; at = line.find(kCall, at + 1)) {
      const char before = at == 0 ? ' ' : line[at - 1];
      const bool part_of_a_name = std::isalnum(static_cast<unsigned char>(before)) || before == '_';
      if (!part_of_a_name && before != '.' && before != '>') return true;
    }
  }
  return false;
}

inline bool has_line(const SourceFile& file, std::string_view wanted) {
  const auto lines = split_text(file.text, '\n');
  return std::find(lines.begin(), lines.end(), wanted) != lines.end();
}

inline constexpr std::size_t kMostColumns = 100;

// Indented lines of a comment are a drawing, a table or an example.
inline bool is_drawn(std::string_view line) { return trim(line).starts_with("//   "); }

// Whether clang-format is configured to keep drawings in comments. Otherwise it reflows their
// lines.
inline bool keeps_drawings(std::string_view clang_format) {
  for (const std::string_view line : split_text(clang_format, '\n')) {
    if (line == "CommentPragmas: '^ {2,}'") return true;
  }
  return false;
}

inline std::vector<std::string> hygiene_violations(const std::vector<SourceFile>& files) {
  std::vector<std::string> violations;
  for (const SourceFile& file : files) {
    const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
    if (static_cast<std::size_t>(lines) > kMostLines && !file.text.starts_with(kWrittenBy)) {
      violations.push_back(file.path + " has " + std::to_string(lines) + " lines; split it");
    }
    if (file.is_header() && !has_line(file, "#pragma once")) {
      violations.push_back(file.path + " has no #pragma once");
    }
    // clang-format breaks other lines, but not these.
    std::size_t number = 0;
    for (const std::string_view line : split_text(file.text, '\n')) {
      ++number;
      if (is_drawn(line) && line.size() > kMostColumns) {
        violations.push_back(file.path + ":" + std::to_string(number) + " is a drawing of " +
                             std::to_string(line.size()) + " columns; draw it in 100");
      }
    }
    const bool in_library =
        file.path.starts_with("lockstep/") && !file.path.starts_with("lockstep/cli/");
    if (!in_library) continue;
    if (calls_exit(file)) {
      violations.push_back(file.path + " calls exit(); throw an Error and let cli/ end the run");
    }
    // A backend/ is a module that is not installed with headers.
    if (!file.is_header() || file.path.find("/backend/") != std::string::npos) continue;
    for (const std::string& include : angle_includes(file)) {
      for (const std::string_view library : kPrivateLibraries) {
        if (include.starts_with(library)) {
          violations.push_back(file.path + " includes <" + include + ">; only sources may");
        }
      }
    }
  }
  return violations;
}

}  // namespace lockstep::architecture
