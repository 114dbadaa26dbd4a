// Reads CSV tables of numbers; the last column is the target.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace lockstep::data {

struct Table {
  std::size_t columns = 0;
  std::vector<double> cells;  // row by row

  std::size_t rows() const { return columns == 0 ? 0 : cells.size() / columns; }
};

// Cells stand between commas and may be in double quotes; a first line without a single number is
// the columns' names. Empty lines are left out. Throws Error(kInvalidArgument) with `name` and the
// line for a cell without a number, for a row of another length, for fewer than two columns, and
// where there are no rows.
Table parse_table(std::string_view text, std::string_view name);

// Scales every column to mean 0 and standard deviation 1 over the first `rows`; a constant column
// becomes 0.
void standardize(Table& table, std::size_t rows);

}  // namespace lockstep::data
