// lockstep sweep: a small grid of runs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/grid.h"
#include "lockstep/cli/run_arguments.h"
#include "lockstep/cli/run_table.h"
#include "lockstep/cli/sweep_runs.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSweepFooter =
    R"(Every combination of the listed values is a run of `lockstep train` in a folder of its own below
--folder, named after what differs: FOLDER/learning_rate=1e-3,layers=2. What it prints goes to
FOLDER/logs.

The same command again skips runs that are finished, and continues the others from their checkpoints.
A run that fails does not stop the others; the exit code is then 1. Ctrl-C and SIGTERM let the running
ones save, and exit with 75. The table at the end is that of `lockstep runs FOLDER`.

With --jobs N the cores are divided among N runs at a time, unless train.threads is set.

Examples:
  lockstep sweep small.toml optimizer.learning_rate=1e-3,3e-4,1e-4
  lockstep sweep small.toml model.layers=2,4 train.seed=1,2,3 --folder depth --jobs 2)";

struct SweepFlags {
  std::vector<std::string> arguments;  // a configuration, then settings
  std::string folder = "sweep";
  int jobs = 1;
  int ranks = 1;
};

// Which settings each finished run had: FOLDER/sweep.json, {"NAME": "hash of its settings"}.
class FinishedRuns {
 public:
  explicit FinishedRuns(const fs::path& folder) : path_(folder / "sweep.json") {
    std::error_code none;
    if (!fs::exists(path_, none)) return;
    const auto json = nlohmann::json::parse(read_file(path_), nullptr, false);
    if (!json.is_object()) return;  // then no run is skipped
    for (const auto& [name, hash] : json.items()) {
      if (hash.is_string()) hashes_[name] = hash.get<std::string>();
    }
  }

  bool has(const std::string& name, const std::string& hash) const {
    const auto found = hashes_.find(name);
    return found != hashes_.end() && found->second == hash;
  }
  void add(const std::string& name, const std::string& hash) {
    hashes_[name] = hash;
    write_file(path_, nlohmann::json(hashes_).dump(2) + "\n");
  }

 private:
  fs::path path_;
  std::map<std::string, std::string> hashes_;
};

struct PlannedSweep {
  std::vector<SweepRun> runs;
  std::map<std::string, std::string> hashes;  // of settings, by name
};

// Refuses what no run could read before the first one starts.
PlannedSweep plan_sweep(const SweepFlags& flags, const fs::path& folder) {
  std::vector<std::string> settings = flags.arguments;
  std::vector<std::string> configuration;
  if (!settings.empty() && settings.front().find('=') == std::string::npos) {
    if (fs::is_directory(settings.front())) {
      fail(ErrorCode::kInvalidArgument,
           "{} is a folder; lockstep sweep takes a configuration file, and makes the folders of "
           "its runs below --folder",
           settings.front());
    }
    configuration.push_back(settings.front());
    settings.erase(settings.begin());
  }
  if (configuration.empty() && settings.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "lockstep sweep needs a configuration file or key=value settings; see lockstep sweep "
         "--help");
  }
  PlannedSweep planned;
  for (const GridPoint& point : grid_of(settings)) {
    for (const std::string& setting : point.settings) {
      if (setting.starts_with("run.dir=") || setting.starts_with("run.name=")) {
        fail(ErrorCode::kInvalidArgument,
             "{}: a sweep names its runs and their folders itself. Leave it out; --folder says "
             "where they are",
             setting);
      }
    }
    std::vector<std::string> arguments = configuration;
    arguments.insert(arguments.end(), point.settings.begin(), point.settings.end());
    train::RunSettings given;
    read_run_arguments(given, arguments);
    std::string values;
    for (const std::string& value : given.config.values()) {
      const bool counts = !value.starts_with("run.dir ") && !value.starts_with("run.name ") &&
                          !value.starts_with("train.threads ");
      if (counts) values += value + "\n";
    }
    const fs::path run = folder / point.name;
    arguments.push_back("run.dir=" + run.string());
    arguments.push_back("run.name=" + point.name);
    if (flags.ranks > 1) {
      arguments.insert(arguments.end(), {"--ranks", std::to_string(flags.ranks)});
    }
    planned.hashes[point.name] = content_hash(values);
    planned.runs.push_back({.name = point.name,
                            .folder = run,
                            .log = folder / "logs" / (point.name + ".txt"),
                            .arguments = std::move(arguments)});
  }
  return planned;
}

void make_sweep_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder / "logs", error);
  if (error) {
    fail(ErrorCode::kSystem, "cannot make the folder {} of the sweep: {}",
         (folder / "logs").string(), error.message());
  }
}

std::string end_of(int exit_code, const SweepRun& run) {
  if (exit_code == 0) return "finished";
  if (exit_code == kToBeContinued) return "stopped, and saved";
  return fmt::format("failed with exit code {}; its last lines are in {}", exit_code,
                     run.log.string());
}

void tell_sweep(const std::string& text) { fmt::print(stderr, "{}\n", printable(text)); }

int run_grid(const SweepFlags& flags) {
  const fs::path folder = fs::absolute(flags.folder).lexically_normal();
  const PlannedSweep planned = plan_sweep(flags, folder);
  make_sweep_folder(folder);
  FinishedRuns finished(folder);
  std::vector<SweepRun> left;
  for (const SweepRun& run : planned.runs) {
    const bool done = finished.has(run.name, planned.hashes.at(run.name)) &&
                      train::summarise_run(run.folder).state == train::RunState::kFinished;
    if (!done) left.push_back(run);
  }
  const std::size_t all = planned.runs.size();
  tell_sweep(fmt::format("{} in {}, {} finished before", counted(all, "run"), folder.string(),
                         all - left.size()));

  const train::StopSignal stop;
  std::size_t begun = all - left.size();
  std::size_t failed = 0;
  bool stopped = false;  // by whoever asked one of them to stop
  const SweepProcesses processes{
      .jobs = flags.jobs,
      .threads = flags.jobs > 1 && flags.ranks == 1
                     ? std::max(CpuSet::of_this_thread().count() / flags.jobs, 1)
                     : 0,
      .begins =
          [&](const SweepRun& run) {
            tell_sweep(fmt::format("[{}/{}] {}", ++begun, all, run.name));
          },
      .ends =
          [&](const SweepRun& run, int exit_code) {
            tell_sweep(fmt::format("{}: {}", run.name, end_of(exit_code, run)));
            if (exit_code == 0) finished.add(run.name, planned.hashes.at(run.name));
            stopped = stopped || exit_code == kToBeContinued;
            if (exit_code != 0 && exit_code != kToBeContinued) ++failed;
          }};
  try {
    run_sweep(left, processes, stop);
  } catch (const CommandError& error) {
    fail(ErrorCode::kSystem, "{}", error.message);
  }
  std::vector<train::RunSummary> summaries;
  for (const SweepRun& run : planned.runs) {
    std::error_code none;
    if (fs::exists(run.folder, none)) summaries.push_back(train::summarise_run(run.folder));
  }
  fmt::print("{}", run_table(summaries, folder));
  if (stop.came()) return kToBeContinued;
  if (failed > 0) return 1;
  return stopped ? kToBeContinued : 0;
}

}  // namespace

void add_sweep(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("sweep", "Train a small grid of runs, one for each combination of values");
  const auto flags = std::make_shared<SweepFlags>();
  command
      ->add_option("run", flags->arguments,
                   "The configuration; settings, with several values separated by commas")
      ->type_name("[CONFIG.toml] [key=value,value ...]");
  command->add_option("--folder", flags->folder, "Where the folders of the runs are made")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--jobs", flags->jobs, "Runs at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("-n,--ranks", flags->ranks, "Workers of every run")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->footer(kSweepFooter);
  command->callback([flags, &exit_code] { exit_code = run_grid(*flags); });
}

}  // namespace lockstep::cli
