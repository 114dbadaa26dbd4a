// Whether bytes are text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::data {

// Throws Error(kInvalidArgument) for what is known to be something else by how it begins: UTF-16
// and UTF-32, archives and documents, pictures, programs, tables of columns. The error says what it
// is and what to do.
void refuse_unless_text(std::string_view bytes, const std::filesystem::path& source);

// What is seldom in a text: mostly it was meant to be converted first.
struct TextFindings {
  std::uint64_t nul = 0;
  std::uint64_t control = 0;  // other than tab, line feed, carriage return and form feed
  std::uint64_t not_utf8 = 0;
  std::string first_in;        // the file of the first of them
  std::uint64_t first_at = 0;  // its byte there
  bool any() const { return nul + control + not_utf8 > 0; }
};

// Adds those of a part of a text, which begins at a byte of its file.
void add_findings(std::string_view text, const std::filesystem::path& source, std::uint64_t begin,
                  TextFindings& findings);
// Those of what comes later in the texts.
void add_findings(const TextFindings& later, TextFindings& findings);

// "the text has 3 NUL bytes, 12 bytes that are no UTF-8 (the first is byte 7 of a.txt), which are
// learned like all else"
std::string describe(const TextFindings& findings);

}  // namespace lockstep::data
