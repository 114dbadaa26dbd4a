#include "lockstep/train/observe/report/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "lockstep/base/text/markup.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/train/observe/report/figures.h"
#include "lockstep/train/observe/report/report_timeline.h"
#include "lockstep/train/observe/report/style.h"
#include "lockstep/train/observe/report/tables.h"

namespace lockstep::train {
namespace {

constexpr std::size_t kMostSamples = 24;  // that are shown

std::string page_text(std::string_view text) { return escape_markup(printable(text)); }

std::string page_count(std::int64_t count) {
  return format_count(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

std::string_view state_of(const Report& report) {
  if (report.running) return "running";
  constexpr std::string_view kStates[] = {"finished", "interrupted", "failed"};
  return kStates[static_cast<std::size_t>(report.end.reason)];
}

std::string moment(std::time_t time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S %Z}", fmt::localtime(time));
}

std::string page_loss(double loss) { return fmt::format("{:.4f}", loss); }

std::string head_of(const Report& report) {
  std::string page = fmt::format(
      "<header><h1>{}</h1><span class=\"state {}\">{}</span></header>\n"
      "<p class=\"when\">{} to {}</p>\n",
      page_text(report.facts.model), state_of(report), state_of(report), moment(report.began),
      moment(report.ended));
  if (!report.end.message.empty()) {
    page += fmt::format("<p class=\"failure\">{}</p>\n", page_text(report.end.message));
  }
  return page;
}

std::string tile(std::string_view name, const std::string& value, const std::string& more) {
  return fmt::format("<div class=\"tile\"><dt>{}</dt><dd>{}</dd><p>{}</p></div>\n", name,
                     page_text(value), page_text(more));
}

std::string tiles_of(const Report& report) {
  const RunFacts& facts = report.facts;
  const RunHistory& history = report.history;
  const auto steps = static_cast<double>(std::max<std::int64_t>(history.steps, 1));
  const auto tokens = static_cast<double>(history.tokens);
  const double seconds = history.compute_seconds;
  const bool ran = seconds > 0;
  const std::string peak = format_si(facts.peak_flops, "FLOP/s");
  std::string tiles = "<dl class=\"tiles\">\n";
  tiles += tile("Loss", ran ? page_loss(history.last_loss) : "none",
                ran ? "after step " + page_count(history.last_step) : "no step was done");
  const auto& best = history.best_validation;
  tiles += tile(
      "Validation loss",
      history.last_validation ? page_loss(history.last_validation->loss) : "none",
      best ? fmt::format("best {} after step {}", page_loss(best->loss), page_count(best->step))
           : "not taken so far");
  tiles += tile("Parameters", format_words(static_cast<double>(facts.parameters)),
                fmt::format("{} in {}", format_count(facts.parameters), facts.precision));
  tiles +=
      tile("Tokens", format_words(tokens), page_count(std::llround(tokens / steps)) + " a step");
  tiles +=
      tile("Throughput", ran ? page_count(std::llround(tokens / seconds)) + " tokens/s" : "none",
           ran ? format_seconds(seconds / steps) + " a step" : "no step was done");
  const double flops = ran ? facts.step_flops * steps / seconds : 0;
  tiles += tile("Model FLOP/s", flops > 0 ? format_si(flops, "FLOP/s") : "unknown",
                facts.peak_flops > 0 ? fmt::format("{:.0f}% of the machine's {}",
                                                   100 * flops / facts.peak_flops, peak)
                                     : "peak not measured");
  tiles += tile("Memory",
                history.memory_bytes > 0 ? format_bytes(static_cast<double>(history.memory_bytes))
                                         : "unknown",
                format_bytes(static_cast<double>(facts.memory_bytes)) + " planned");
  tiles += tile("Time", format_duration(all_seconds(report)),
                facts.first_step > 1
                    ? format_duration(report.end.seconds) + " since it was resumed"
                    : fmt::format("{:.0f}% computing", 100 * (seconds - history.waiting_seconds) /
                                                           std::max(all_seconds(report), 1e-9)));
  return tiles + "</dl>\n";
}

std::string facts_of(const Report& report) {
  const RunFacts& facts = report.facts;
  std::string steps =
      fmt::format("{} of {}", page_count(report.history.last_step), page_count(facts.steps));
  if (facts.first_step > 1)
    steps += fmt::format(", resumed with step {}", page_count(facts.first_step));
  if (report.history.skipped > 0) {
    steps += fmt::format(", {} skipped", page_count(report.history.skipped));
  }
  const std::string workers =
      facts.workers > 1 ? fmt::format("{}, {}", facts.workers, facts.strategy) : "";
  const std::pair<std::string_view, std::string> rows[] = {{"Model", facts.model},
                                                           {"Precision", facts.precision},
                                                           {"Hardware", facts.hardware},
                                                           {"Workers", workers},
                                                           {"Data", facts.data},
                                                           {"Steps", steps},
                                                           {"Folder", facts.folder.string()}};
  std::string list = "<section class=\"card wide\"><dl class=\"facts\">\n";
  for (const auto& [name, value] : rows) {
    if (!value.empty()) list += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, page_text(value));
  }
  return list + "</dl></section>\n";
}

// The first, the last, and equally many between those that are shown.
std::vector<const Sample*> some_of(const std::vector<Sample>& samples) {
  std::vector<const Sample*> some;
  const std::size_t count = std::min(samples.size(), kMostSamples);
  for (std::size_t i = 0; i < count; ++i) {
    some.push_back(&samples[count == 1 ? 0 : i * (samples.size() - 1) / (count - 1)]);
  }
  return some;
}

std::string samples_of(const std::vector<Sample>& samples) {
  if (samples.empty()) return "";
  std::string list = "<section class=\"card wide\"><div class=\"head\"><h2>Samples</h2>";
  if (samples.size() > kMostSamples) {
    list += fmt::format("<span class=\"legend\">{} of {}</span>", kMostSamples, samples.size());
  }
  list += "</div>\n";
  for (const Sample* sample : some_of(samples)) {
    list += fmt::format("<div class=\"sample\"><b>step {}</b><pre>{}</pre></div>\n",
                        page_count(sample->step), page_text(sample->text));
  }
  return list + "</section>\n";
}

std::string folded(std::string_view title, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("<details class=\"card wide\"><summary>{}</summary><pre>{}</pre></details>\n",
                     title, page_text(text));
}

}  // namespace

std::string report_page(const Report& report) {
  std::string messages;
  for (const std::string& message : report.messages) messages += message + '\n';
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<title>{} ({})</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
             page_text(report.facts.model), state_of(report), report_style()) +
         head_of(report) + tiles_of(report) + "<div class=\"cards\">\n" + facts_of(report) +
         figure_sections(report.history) + timeline_section(report.trace) + time_section(report) +
         memory_section(report) + samples_of(report.samples) + folded("Messages", messages) +
         folded("Configuration", report.facts.config) +
         "</div>\n<footer>Written by lockstep.</footer>\n</main>\n<script>" +
         std::string(kReportScript) + "</script>\n</body>\n</html>\n";
}

}  // namespace lockstep::train
