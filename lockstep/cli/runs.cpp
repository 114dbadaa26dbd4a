// lockstep runs: a table of the runs below a folder.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/cli/run_table.h"

namespace lockstep::cli {
namespace {

constexpr const char* kRunsFooter =
    R"(A run is running while a process holds the lock of its folder; else the table shows how its last
process ended: finished, stopped (asked to, and saved), failed, or killed. A run whose files cannot be
read is broken. tokens/s is the mean over all steps.

Columns to sort and filter by: folder, name, status, step, steps, loss, val_loss, best_val_loss,
tokens_per_s, parameters, started (seconds since 1970). --sort -loss sorts downwards.

Examples:
  lockstep runs experiments
  lockstep runs . --sort best_val_loss --filter status=finished --filter 'name=wide*'
  lockstep runs experiments --filter 'best_val_loss<1.5' --json)";

struct RunListFlags {
  std::string folder = ".";
  bool json = false;
  std::string sort = "folder";
  std::vector<std::string> filters;
};

void list_runs(const RunListFlags& flags) {
  std::vector<train::RunSummary> runs;
  for (const std::filesystem::path& folder : train::find_runs(flags.folder)) {
    runs.push_back(train::summarise_run(folder));
  }
  const bool none = runs.empty();
  for (const std::string& condition : flags.filters) filter_runs(runs, condition);
  sort_runs(runs, flags.sort);
  if (flags.json) {
    fmt::print("{}", run_table_json(runs));
  } else if (runs.empty()) {
    fmt::print("{}\n", none ? "no runs below " + flags.folder : "no run passes the filters");
  } else {
    fmt::print("{}", run_table(runs, flags.folder));
  }
}

}  // namespace

void add_runs(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("runs", "List the runs below a folder with their losses");
  const auto flags = std::make_shared<RunListFlags>();
  command->add_option("folder", flags->folder, "Where to look for runs")
      ->type_name("FOLDER")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print the runs as JSON");
  command->add_option("--sort", flags->sort, "The column to sort by; -COLUMN: downwards")
      ->type_name("COLUMN")
      ->capture_default_str();
  command
      ->add_option("--filter", flags->filters,
                   "Only runs with COLUMN=PATTERN, COLUMN<NUMBER or COLUMN>NUMBER; again for more")
      ->type_name("CONDITION")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->footer(kRunsFooter);
  command->callback([flags, &exit_code] {
    list_runs(*flags);
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
