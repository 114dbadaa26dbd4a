// Text in aligned columns.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

class TextTable {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Columns two spaces apart, every line behind `indent`; no spaces at the ends of lines.
  std::string text(std::string_view indent = "  ") const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::cli
