#include "lockstep/data/text/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/text.h"

namespace lockstep::data {
namespace {

std::string_view without_quotes(std::string_view cell) {
  cell = trim(cell);
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
    cell = trim(cell.substr(1, cell.size() - 2));
  }
  return cell;
}

std::optional<double> number_in(std::string_view cell) {
  if (cell.starts_with('+')) cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

bool has_a_number(const std::vector<std::string_view>& cells) {
  return std::any_of(cells.begin(), cells.end(), [](std::string_view cell) {
    return number_in(without_quotes(cell)).has_value();
  });
}

}  // namespace

Table parse_table(std::string_view text, std::string_view name) {
  Table table;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (trim(line).empty()) continue;
    const std::vector<std::string_view> cells = split_text(line, ',');
    const bool first = table.columns == 0;
    if (first) table.columns = cells.size();
    if (table.columns < 2) {
      fail(ErrorCode::kInvalidArgument,
           "{}:{}: expected at least one column of features and, last, one of outputs, separated "
           "by commas, but there is one column",
           name, number);
    }
    if (cells.size() != table.columns) {
      fail(ErrorCode::kInvalidArgument, "{}:{}: the row has {} cells, but earlier rows have {}",
           name, number, cells.size(), table.columns);
    }
    if (first && !has_a_number(cells)) continue;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string_view cell = without_quotes(cells[i]);
      const std::optional<double> value = number_in(cell);
      if (!value) {
        fail(ErrorCode::kInvalidArgument, "{}:{}: cell {} is '{}'; expected a number", name, number,
             i + 1, printable(cell));
      }
      table.cells.push_back(*value);
    }
  }
  if (table.rows() == 0) fail(ErrorCode::kInvalidArgument, "{} has no rows", name);
  return table;
}

void standardize(Table& table, std::size_t rows) {
  rows = std::min(rows, table.rows());
  for (std::size_t column = 0; column < table.columns; ++column) {
    const auto cell = [&](std::size_t row) -> double& {
      return table.cells[row * table.columns + column];
    };
    double mean = 0;
    for (std::size_t row = 0; row < rows; ++row) mean += cell(row) / static_cast<double>(rows);
    double variance = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      variance += (cell(row) - mean) * (cell(row) - mean) / static_cast<double>(rows);
    }
    const double scale = variance > 0 ? 1 / std::sqrt(variance) : 0;
    for (std::size_t row = 0; row < table.rows(); ++row) cell(row) = (cell(row) - mean) * scale;
  }
}

}  // namespace lockstep::data
