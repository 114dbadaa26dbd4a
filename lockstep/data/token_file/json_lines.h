// Texts in lines of JSON, and the texts that a tokenizer learns from.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/text/text_files.h"
#include "lockstep/data/text/text_pieces.h"

namespace lockstep::data {

// The text in that field of a line. Throws Error(kInvalidArgument), with file and line, where it is
// no JSON object with a text there.
std::string text_of_json_line(const TextPiece::Part& part, const std::string& field);

// All texts of files in memory at once, for as long as it lives.
class LearningTexts {
 public:
  // With a field, the files are JSON lines. Throws what open_text() and text_of_json_line() throw.
  void add(std::span<const TextFile> files, const std::string& field);

  std::span<const std::string_view> views() const { return views_; }
  // Throws Error(kProtocol) where a file became shorter meanwhile.
  void check_whole() const;

 private:
  std::vector<std::shared_ptr<const Text>> texts_;
  std::vector<std::vector<std::string>> lines_;
  std::vector<std::string_view> views_;
};

}  // namespace lockstep::data
