// The results of a case, as a table and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::bench::data_parallel {

// How a column's numbers are written.
enum class Unit : std::uint8_t { kSeconds, kPerSecond, kBytes, kRatio, kLoss, kCount };

struct Column {
  std::string key;  // in JSON: "tokens_per_s"
  std::string heading;
  Unit unit = Unit::kRatio;
};

// One setting. A number or word that it lacks is a dash in the table.
struct Row {
  std::string setting;
  std::vector<std::pair<std::string, double>> numbers;     // by the keys of columns
  std::vector<std::pair<std::string, std::string>> words;  // columns of text, by heading
  std::string problem;                                     // why there are none
  bool ours = true;                                        // not a peer

  std::optional<double> number(std::string_view key) const;
};

// Something that a number has to reach.
struct Bar {
  enum class Side : std::uint8_t { kAtLeast, kAtMost };

  std::string claim;  // "2 ranks / 1 rank, tokens/s"
  Side side = Side::kAtLeast;
  double bound = 0;
  std::optional<double> value;  // none: it could not be measured
  std::string why_not;          // then: "needs --text FILE"

  bool met() const;
};

struct CaseReport {
  std::string name;
  std::string what;  // was run, in a line
  std::vector<Column> columns;
  std::vector<Row> rows;
  std::vector<Bar> bars;
  std::string drawing;  // below the table, where there is one

  // A row's number; none where it failed or there is no such row.
  std::optional<double> number(std::string_view setting, std::string_view key) const;
  // The first by the second; none where either is missing.
  std::optional<double> ratio(std::string_view setting, std::string_view other,
                              std::string_view key) const;
  bool failed() const;  // whether a row of ours has a problem
};

std::string to_text(const CaseReport& report);
// An array: for each row an object with case, setting and its numbers, for each bar one with case,
// bar, value, bound and met.
std::string to_json(const std::vector<CaseReport>& reports);

// Points over labels, low ones at the bottom: a curve of `height` lines that shows where its valley
// is. `marked` is drawn as an 'o', the others as '*'.
std::string draw_curve(const std::vector<std::pair<std::string, double>>& points,
                       std::size_t marked, std::string_view unit);

}  // namespace lockstep::bench::data_parallel
