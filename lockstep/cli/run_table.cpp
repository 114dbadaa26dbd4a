#include "lockstep/cli/run_table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

using train::RunSummary;

struct RunColumn {
  std::string_view name;
  std::string (*text)(const RunSummary&);              // of a column of text; else null
  std::optional<double> (*number)(const RunSummary&);  // of a column of numbers; else null
};

std::optional<double> if_any(double value, bool known) {
  return known ? std::optional(value) : std::nullopt;
}

std::optional<double> loss_of(const std::optional<RunSummary::Validation>& one) {
  return one && std::isfinite(one->loss) ? std::optional(one->loss) : std::nullopt;
}

constexpr RunColumn kRunColumns[] = {
    {"folder", [](const RunSummary& run) { return run.folder.string(); }, nullptr},
    {"name", [](const RunSummary& run) { return run.name; }, nullptr},
    {"status", [](const RunSummary& run) { return std::string(train::name(run.state)); }, nullptr},
    {"step", nullptr,
     [](const RunSummary& run) { return if_any(static_cast<double>(run.step), run.step > 0); }},
    {"steps", nullptr,
     [](const RunSummary& run) { return if_any(static_cast<double>(run.steps), run.steps > 0); }},
    {"loss", nullptr, [](const RunSummary& run) { return run.loss; }},
    {"val_loss", nullptr, [](const RunSummary& run) { return loss_of(run.validation); }},
    {"best_val_loss", nullptr, [](const RunSummary& run) { return loss_of(run.best_validation); }},
    {"tokens_per_s", nullptr, [](const RunSummary& run) { return run.tokens_per_second; }},
    {"parameters", nullptr,
     [](const RunSummary& run) {
       return if_any(static_cast<double>(run.parameters), run.parameters > 0);
     }},
    {"started", nullptr,
     [](const RunSummary& run) {
       return if_any(static_cast<double>(run.started.value_or(0)), run.started.has_value());
     }},
};

const RunColumn& column_of(std::string_view flag, std::string_view name) {
  const auto found = std::ranges::find(kRunColumns, name, &RunColumn::name);
  if (found != std::end(kRunColumns)) return *found;
  fail(ErrorCode::kInvalidArgument, "{} names the column '{}'; there are {}", flag, name,
       fmt::join(run_columns(), ", "));
}

std::string moment_text(std::int64_t seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(static_cast<std::time_t>(seconds)));
}

std::string shown_folder(const RunSummary& run, const std::filesystem::path& base) {
  const std::filesystem::path shown = run.folder.lexically_relative(base);
  return printable(shown.empty() || shown == "." ? run.folder.string() : shown.string());
}

std::string loss_text(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "-";
}

std::string step_text(const RunSummary& run) {
  const auto count = [](std::int64_t steps) {
    return format_count(static_cast<std::uint64_t>(std::max<std::int64_t>(steps, 0)));
  };
  return run.steps > 0 ? fmt::format("{}/{}", count(run.step), count(run.steps)) : count(run.step);
}

std::string best_text(const RunSummary& run) {
  const auto loss = loss_of(run.best_validation);
  if (!loss) return "-";
  return fmt::format("{:.4f} @ {}", *loss,
                     format_count(static_cast<std::uint64_t>(run.best_validation->step)));
}

}  // namespace

std::vector<std::string_view> run_columns() {
  std::vector<std::string_view> names;
  for (const RunColumn& column : kRunColumns) names.push_back(column.name);
  return names;
}

void sort_runs(std::vector<RunSummary>& runs, std::string_view column) {
  const bool downwards = column.starts_with('-');
  if (downwards) column.remove_prefix(1);
  const RunColumn& by = column_of("--sort", column);
  std::ranges::stable_sort(runs, [&](const RunSummary& a, const RunSummary& b) {
    if (by.text != nullptr) return downwards ? by.text(b) < by.text(a) : by.text(a) < by.text(b);
    const auto x = by.number(a);
    const auto y = by.number(b);
    if (!x || !y) return x.has_value() && !y.has_value();
    return downwards ? *y < *x : *x < *y;
  });
}

void filter_runs(std::vector<RunSummary>& runs, std::string_view condition) {
  const std::size_t at = condition.find_first_of("=<>");
  if (at == std::string_view::npos || at == 0) {
    fail(ErrorCode::kInvalidArgument,
         "--filter is '{}'; write it like status=finished, name=wide* or best_val_loss<1.5",
         condition);
  }
  const RunColumn& column = column_of("--filter", condition.substr(0, at));
  const std::string value(condition.substr(at + 1));
  const char sign = condition[at];
  if (column.text != nullptr) {
    if (sign != '=') {
      fail(ErrorCode::kInvalidArgument,
           "--filter is '{}', but {} is not a number; write {}=PATTERN", condition, column.name,
           column.name);
    }
    std::erase_if(runs, [&](const RunSummary& run) {
      return ::fnmatch(value.c_str(), column.text(run).c_str(), 0) != 0;
    });
    return;
  }
  double limit = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), limit);
  if (error != std::errc() || end != value.data() + value.size()) {
    fail(ErrorCode::kInvalidArgument, "--filter is '{}'; expected a number behind {}{}", condition,
         column.name, sign);
  }
  std::erase_if(runs, [&](const RunSummary& run) {
    const auto number = column.number(run);
    if (!number) return true;
    return sign == '=' ? *number != limit : sign == '<' ? *number >= limit : *number <= limit;
  });
}

std::string run_table(const std::vector<RunSummary>& runs, const std::filesystem::path& base) {
  // Runs of a sweep are called as their folders.
  const bool named = std::ranges::any_of(runs, [](const RunSummary& run) {
    return !run.name.empty() && run.name != run.folder.filename();
  });
  std::vector<std::string> head = {"run"};
  if (named) head.emplace_back("name");
  for (const char* column :
       {"status", "step", "loss", "val", "best val", "tokens/s", "parameters", "started"}) {
    head.emplace_back(column);
  }
  TextTable table(named ? "lllrrrrrrl" : "llrrrrrrl");
  table.row(head);
  std::string problems;
  for (const RunSummary& run : runs) {
    std::vector<std::string> row = {shown_folder(run, base)};
    if (named) row.push_back(printable(run.name));
    row.emplace_back(train::name(run.state));
    row.push_back(step_text(run));
    row.push_back(loss_text(run.loss));
    row.push_back(loss_text(loss_of(run.validation)));
    row.push_back(best_text(run));
    row.push_back(run.tokens_per_second
                      ? format_count(static_cast<std::uint64_t>(*run.tokens_per_second))
                      : "-");
    row.push_back(run.parameters > 0 ? format_count(run.parameters) : "-");
    row.push_back(run.started ? moment_text(*run.started) : "-");
    table.row(std::move(row));
    if (!run.problem.empty()) {
      problems += fmt::format("{}: {}\n", shown_folder(run, base), printable(run.problem));
    }
  }
  return table.text("") + problems;
}

std::string run_table_json(const std::vector<RunSummary>& runs) {
  using RunJson = nlohmann::ordered_json;
  RunJson all = RunJson::array();
  for (const RunSummary& run : runs) {
    RunJson one{{"folder", run.folder.string()},
                {"name", run.name},
                {"status", train::name(run.state)},
                {"step", run.step},
                {"steps", run.steps}};
    const auto add = [&](const char* key, const auto& value) {
      if (value) one[key] = *value;
    };
    add("loss", run.loss);
    add("val_loss", loss_of(run.validation));
    add("best_val_loss", loss_of(run.best_validation));
    if (loss_of(run.best_validation)) one["best_step"] = run.best_validation->step;
    add("tokens_per_s", run.tokens_per_second);
    if (run.parameters > 0) one["parameters"] = run.parameters;
    if (!run.model.empty()) one["model"] = run.model;
    add("started", run.started);
    if (!run.problem.empty()) one["problem"] = run.problem;
    all.push_back(std::move(one));
  }
  // Paths, names and messages may be any bytes.
  return all.dump(2, ' ', false, RunJson::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::cli
