// Text in aligned columns.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::cli {

class TextTable {
 public:
  // Columns are aligned to the left, those with an 'r' at their place to the right: "lrr".
  explicit TextTable(std::string alignment = "") : alignment_(std::move(alignment)) {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Columns two spaces apart, every line behind `indent`; no spaces at the ends of lines.
  std::string text(std::string_view indent = "  ") const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::cli
