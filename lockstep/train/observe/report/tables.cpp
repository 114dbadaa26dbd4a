#include "lockstep/train/observe/report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/base/text/markup.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/units.h"

namespace lockstep::train {
namespace {

double share_of(double part, double all) { return all > 0 ? 100 * part / all : 0; }

std::string share_text(double share) {
  return share > 0 && share < 0.1 ? "< 0.1%" : fmt::format("{:.1f}%", share);
}

std::string memory_row(const nn::ClassLine& line, double largest, double all) {
  const auto bytes = static_cast<double>(line.bytes());
  std::string name = escape_markup(printable(line.name));
  if (line.count > 1) {
    name += fmt::format("<small>{} &times; {}</small>", line.count,
                        format_bytes(static_cast<double>(line.each)));
  }
  return fmt::format(
      "<tr><td class=\"name\">{}</td><td class=\"bar\"><i class=\"blue\" style=\"width:{:.2f}%\">"
      "</i></td><td class=\"number\" title=\"{} bytes\">{}</td><td class=\"number share\">{}</td>"
      "</tr>\n",
      name, share_of(bytes, largest), format_count(line.bytes()), format_bytes(bytes),
      share_text(share_of(bytes, all)));
}

std::string plain_row(std::string_view style, std::string_view name, const std::string& amount) {
  return fmt::format(
      "<tr class=\"{}\"><td class=\"name\" colspan=\"2\">{}</td><td class=\"number\">{}</td>"
      "<td></td></tr>\n",
      style, name, amount);
}

std::string row_beside(std::string_view name, const std::string& value) {
  return fmt::format(
      "<tr class=\"beside\"><td class=\"name\">{}</td><td class=\"number\" colspan=\"2\">{}</td>"
      "</tr>\n",
      name, value);
}

// What lies beside the sum of times.
std::string rows_beside(const RunHistory& history) {
  const auto row = row_beside;
  std::string rows;
  if (history.background_seconds > 0) {
    rows += row("checkpoints, beside steps", format_duration(history.background_seconds));
  }
  if (history.shared_steps == 0) return rows;
  const auto steps = static_cast<double>(history.shared_steps);
  rows += row("communication, mean over ranks", format_duration(history.communication_seconds));
  rows += row("exposed of it", format_duration(history.exposed_seconds));
  rows += row("exposed at the rank that waited longest",
              format_duration(history.longest_exposed_seconds));
  rows += row("sent by all ranks", format_bytes(static_cast<double>(history.bytes_sent)));
  if (history.bytes_across > 0) {
    rows += row("of that between nodes", format_bytes(static_cast<double>(history.bytes_across)));
  }
  if (!history.slowest.empty()) {
    const auto slowest = std::ranges::max_element(
        history.slowest, {}, [](const auto& rank_and_steps) { return rank_and_steps.second; });
    rows += row("most often slowest",
                fmt::format("rank {}, {:.0f}%", slowest->first,
                            share_of(static_cast<double>(slowest->second), steps)));
  }
  if (history.staleness > 0) {
    rows += row("staleness", fmt::format("{:.2f} updates, {:.1f} at most",
                                         history.staleness / steps, history.most_stale));
  }
  return rows;
}

}  // namespace

double other_seconds(const Report& report) {
  return std::max(0.0, report.end.seconds - report.history.seconds_of_this_process);
}

double all_seconds(const Report& report) {
  return report.history.recorded_seconds() + other_seconds(report);
}

std::string memory_section(const Report& report) {
  double largest = 0;
  double all = 0;
  for (const nn::ClassLine& line : report.facts.memory) {
    const auto bytes = static_cast<double>(line.bytes());
    largest = std::max(largest, bytes);
    all += bytes;
  }
  std::string rows;
  for (const nn::ClassLine& line : report.facts.memory) rows += memory_row(line, largest, all);
  const std::string planned =
      fmt::format("planned<small>{} bytes</small>", format_count(report.facts.memory_bytes));
  rows += plain_row("sum", planned, format_bytes(static_cast<double>(report.facts.memory_bytes)));
  rows += plain_row("beside", "most the process had in RAM",
                    format_bytes(static_cast<double>(report.history.memory_bytes)));
  return fmt::format(
      "<section class=\"card most\"><div class=\"head\"><h2>Memory</h2></div>\n<table>\n{}</table>"
      "</section>\n",
      rows);
}

std::string time_section(const Report& report) {
  const RunHistory& history = report.history;
  struct Part {
    std::string_view name;
    std::string_view style;
    double seconds;
  };
  std::vector<Part> parts = {
      {"computing", "blue", history.compute_seconds - history.waiting_seconds},
      {"waiting for data", "orange", history.data_seconds},
      {"checkpoints", "purple", history.checkpoint_seconds},
      {"validation", "teal", history.validation_seconds},
      {"other", "grey", other_seconds(report)}};
  if (history.shared_steps > 0) {
    parts.insert(parts.begin() + 1, {"waiting for ranks", "rose", history.waiting_seconds});
  }
  const double all = all_seconds(report);
  std::string stack;
  std::string rows;
  for (const Part& part : parts) {
    const double share = share_of(part.seconds, all);
    if (share > 0) {
      stack += fmt::format("<i class=\"{}\" style=\"flex:{:.3f}\"></i>", part.style, share);
    }
    rows += fmt::format(
        "<tr><td class=\"name\"><i class=\"swatch {}\"></i>{}</td><td class=\"number\">{}</td>"
        "<td class=\"number share\">{}</td></tr>\n",
        part.style, part.name, format_duration(part.seconds), share_text(share));
  }
  return fmt::format(
      "<section class=\"card third\"><div class=\"head\"><h2>Time</h2></div>\n"
      "<div class=\"stack\">{}</div>\n<table>\n{}"
      "<tr class=\"sum\"><td class=\"name\">all</td><td class=\"number\">{}</td><td></td></tr>\n"
      "{}</table></section>\n",
      stack, rows, format_duration(all), rows_beside(history));
}

}  // namespace lockstep::train
