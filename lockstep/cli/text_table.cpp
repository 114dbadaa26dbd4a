#include "lockstep/cli/text_table.h"

#include <algorithm>

namespace lockstep::cli {

std::string TextTable::text(std::string_view indent) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string filling(widths[i] - row[i].size(), ' ');
      const bool to_the_right = i < alignment_.size() && alignment_[i] == 'r';
      line += to_the_right ? filling + row[i] : row[i] + filling;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::cli
