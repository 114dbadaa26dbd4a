#include "lockstep/train/run/run_summary.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/observe/report/history.h"
#include "lockstep/train/observe/run_status.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStateNames[] = {"running", "finished", "stopped", "failed",
                                            "killed",  "imported", "unknown", "broken"};

bool run_has(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

bool is_run_folder(const fs::path& path) {
  // Imported runs have no lock.
  return RunFolder::is_run(path) ||
         (run_has(path / kCheckpoints) && run_has(RunFolder::config_of(path)));
}

void read_config(RunSummary& run) {
  const fs::path file = RunFolder::config_of(run.folder);
  if (!run_has(file)) return;
  RunSettings settings;
  settings.config.read_file(file.string());
  run.name = settings.options.name;
  run.steps = settings.options.steps;
}

void read_steps(RunSummary& run) {
  const HistoryBuilder builder = read_history(run.folder, run.steps, 1);
  const RunHistory& history = builder.history();
  if (history.steps == 0) return;
  run.step = history.last_step;
  if (std::isfinite(history.last_loss)) run.loss = history.last_loss;
  const auto validation = [](const std::optional<RunHistory::Validation>& one) {
    return one ? std::optional(RunSummary::Validation{one->step, one->loss}) : std::nullopt;
  };
  run.validation = validation(history.last_validation);
  run.best_validation = validation(history.best_validation);
  if (history.compute_seconds > 0) {
    run.tokens_per_second = static_cast<double>(history.tokens) / history.compute_seconds;
  }
}

RunState state_of_ended(const RunSummary& run, const std::optional<RunStatus>& status) {
  if (!status) {
    const std::vector<std::int64_t> saved = CheckpointFolder(run.folder).steps();
    const bool imported = run.step == 0 && saved == std::vector<std::int64_t>{0};
    return imported ? RunState::kImported : RunState::kUnknown;
  }
  for (const RunState state : {RunState::kFinished, RunState::kStopped, RunState::kFailed}) {
    if (status->status == name(state)) return state;
  }
  if (status->status == name(RunState::kRunning)) return RunState::kKilled;
  fail(ErrorCode::kProtocol, "facts.json has the unknown status '{}'", status->status);
}

void read_all(RunSummary& run) {
  // Before the other files: a run that ends meanwhile writes them first.
  const std::optional<bool> locked = RunFolder::is_locked(run.folder);
  if (locked == true) run.state = RunState::kRunning;
  read_config(run);
  const std::optional<RunStatus> status = read_status(run.folder);
  if (status) {
    run.model = status->model;
    run.parameters = status->parameters;
    run.started = status->started;
    run.problem = status->message;
  }
  read_steps(run);
  if (locked == false) run.state = state_of_ended(run, status);
  if (run.state == RunState::kRunning) run.problem.clear();  // of the process before
}

}  // namespace

std::string_view name(RunState state) { return kStateNames[static_cast<std::size_t>(state)]; }

RunSummary summarise_run(const fs::path& folder) noexcept {
  RunSummary run;
  try {
    run.folder = folder;
    read_all(run);
  } catch (const std::exception& error) {
    run.state = RunState::kBroken;
    run.problem = error.what();
  }
  return run;
}

std::vector<fs::path> find_runs(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    fail(ErrorCode::kInvalidArgument, "{} is not a folder; give one that has runs in it",
         folder.string());
  }
  std::vector<fs::path> found;
  if (is_run_folder(folder)) return {folder};
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, kOptions, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code none;
    if (!at->is_directory(none) || at->is_symlink(none)) continue;
    if (!is_run_folder(at->path())) continue;
    found.push_back(at->path());
    at.disable_recursion_pending();
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace lockstep::train
