#include "lockstep/bench/data_parallel/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/text/number.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"

namespace lockstep::bench::data_parallel {
namespace {

using ReportJson = nlohmann::ordered_json;
using Line = std::vector<std::string>;

std::string written(double value, Unit unit) {
  switch (unit) {
    case Unit::kSeconds:
      return format_seconds(value);
    case Unit::kPerSecond:
      return value < 100 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
    case Unit::kBytes:
      return format_si(value, "B");
    case Unit::kRatio:
      return fmt::format("{:.3f}", value);
    case Unit::kLoss:
      return fmt::format("{:.4f}", value);
    case Unit::kCount:
      return fmt::format("{:.0f}", value);
  }
  return "";
}

const std::string* word_of(const Row& row, std::string_view heading) {
  const auto found = std::find_if(row.words.begin(), row.words.end(),
                                  [&](const auto& word) { return word.first == heading; });
  return found == row.words.end() ? nullptr : &found->second;
}

std::vector<std::string> word_headings(const CaseReport& report) {
  std::vector<std::string> headings;
  for (const Row& row : report.rows) {
    for (const auto& [heading, word] : row.words) {
      if (std::find(headings.begin(), headings.end(), heading) == headings.end()) {
        headings.push_back(heading);
      }
    }
  }
  return headings;
}

Line cells_of(const CaseReport& report, const Row& row, const std::vector<std::string>& headings) {
  Line cells{row.setting};
  for (const Column& column : report.columns) {
    const auto number = row.number(column.key);
    cells.push_back(number ? written(*number, column.unit) : "-");
  }
  for (const std::string& heading : headings) {
    const std::string* word = word_of(row, heading);
    cells.push_back(word != nullptr ? *word : "-");
  }
  return cells;
}

// The first column to the left, the others to the right. A row of one cell is as it is.
std::string aligned(const std::vector<Line>& lines) {
  std::vector<std::size_t> widths;
  for (const Line& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Line& line : lines) {
    text += fmt::format("  {:<{}}", line.front(), line.size() > 1 ? widths.front() : 0);
    for (std::size_t i = 1; i < line.size(); ++i) {
      text += fmt::format("  {:>{}}", line[i], widths[i]);
    }
    text += '\n';
  }
  return text;
}

std::string indented(std::string_view text) {
  std::string result;
  for (const std::string_view line : split_text(text, '\n')) {
    result += fmt::format("    {}\n", line);
  }
  return result;
}

std::string bar_text(const Bar& bar) {
  const char* relation = bar.side == Bar::Side::kAtLeast ? ">=" : "<=";
  if (!bar.value) {
    return fmt::format("  {}: not measured ({} {:g} is asked for): {}\n", bar.claim, relation,
                       bar.bound, bar.why_not);
  }
  return fmt::format("  {}: {:.3f}, {} {:g} is asked for: {}\n", bar.claim, *bar.value, relation,
                     bar.bound, bar.met() ? "met" : "NOT MET");
}

}  // namespace

std::optional<double> Row::number(std::string_view key) const {
  const auto found = std::find_if(numbers.begin(), numbers.end(),
                                  [&](const auto& number) { return number.first == key; });
  if (found == numbers.end()) return std::nullopt;
  return found->second;
}

bool Bar::met() const {
  return value && (side == Side::kAtLeast ? *value >= bound : *value <= bound);
}

std::optional<double> CaseReport::number(std::string_view setting, std::string_view key) const {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const Row& row) { return row.setting == setting; });
  return found == rows.end() ? std::nullopt : found->number(key);
}

std::optional<double> CaseReport::ratio(std::string_view setting, std::string_view other,
                                        std::string_view key) const {
  const auto above = number(setting, key);
  const auto below = number(other, key);
  if (!above || !below || *below == 0) return std::nullopt;
  return *above / *below;
}

bool CaseReport::failed() const {
  return std::any_of(rows.begin(), rows.end(),
                     [](const Row& row) { return row.ours && !row.problem.empty(); });
}

std::string to_text(const CaseReport& report) {
  const std::vector<std::string> headings = word_headings(report);
  Line head{""};
  for (const Column& column : report.columns) head.push_back(column.heading);
  head.insert(head.end(), headings.begin(), headings.end());
  std::vector<Line> lines{head};
  std::string problems;
  for (const Row& row : report.rows) {
    if (row.problem.empty()) {
      lines.push_back(cells_of(report, row, headings));
    } else {
      problems += fmt::format("  {}: FAILED\n{}", row.setting, indented(row.problem));
    }
  }
  std::string text = fmt::format("{}: {}\n", report.name, report.what);
  if (lines.size() > 1) text += aligned(lines);
  text += problems;
  if (!report.drawing.empty()) text += '\n' + report.drawing + '\n';
  for (const Bar& bar : report.bars) text += bar_text(bar);
  return text + '\n';
}

std::string to_json(const std::vector<CaseReport>& reports) {
  ReportJson array = ReportJson::array();
  for (const CaseReport& report : reports) {
    for (const Row& row : report.rows) {
      ReportJson object{{"case", report.name}, {"setting", row.setting}};
      for (const auto& [key, value] : row.numbers) object[key] = value;
      for (const auto& [key, word] : row.words) object[key] = word;
      if (!row.problem.empty()) object["problem"] = row.problem;
      array.push_back(std::move(object));
    }
    for (const Bar& bar : report.bars) {
      ReportJson object{{"case", report.name}, {"bar", bar.claim}};
      object[bar.side == Bar::Side::kAtLeast ? "at_least" : "at_most"] = bar.bound;
      object["value"] = bar.value ? ReportJson(*bar.value) : ReportJson(nullptr);
      object["met"] = bar.met();
      if (!bar.value) object["problem"] = bar.why_not;
      array.push_back(std::move(object));
    }
  }
  return array.dump(2, ' ', false, ReportJson::error_handler_t::replace) + "\n";
}

std::string draw_curve(const std::vector<std::pair<std::string, double>>& points,
                       std::size_t marked, std::string_view unit) {
  constexpr int kHeight = 9;
  constexpr std::size_t kWide = 7;  // columns of a point
  constexpr int kMargin = 10;
  if (points.empty()) return "";
  const auto [lowest, highest] =
      std::minmax_element(points.begin(), points.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  const double low = lowest->second;
  const double range = std::max(highest->second - low, 1e-9);
  std::vector<std::string> lines(kHeight, std::string(points.size() * kWide, ' '));
  std::string labels;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto up = std::lround((points[i].second - low) / range * (kHeight - 1));
    lines[static_cast<std::size_t>(kHeight - 1 - up)][i * kWide + kWide / 2] =
        i == marked ? 'o' : '*';
    labels += fmt::format("{:^{}}", points[i].first, kWide);
  }
  std::string text;
  for (int i = 0; i < kHeight; ++i) {
    const double value = i == 0 ? low + range : low;
    const std::string tick = i == 0 || i == kHeight - 1 ? format_seconds(value) : "";
    text += fmt::format("{:>{}} |{}\n", tick, kMargin, lines[static_cast<std::size_t>(i)]);
  }
  text += fmt::format("{:>{}} +{}\n", "", kMargin, std::string(points.size() * kWide, '-'));
  return text + fmt::format("{:>{}}  {} {}\n", "", kMargin, labels, unit);
}

}  // namespace lockstep::bench::data_parallel
