// What is known about a run from its folder alone, while it is running or later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::train {

enum class RunState : std::uint8_t {
  kRunning,   // a process holds the lock of the folder; the others are what the last process wrote
              // into facts.json, while no process holds it
  kFinished,  // all steps, or stopped early
  kStopped,   // was asked to, and has saved
  kFailed,    // with an error
  kKilled,    // it has written nothing of its end
  kImported,  // a checkpoint from elsewhere, not trained so far
  kUnknown,   // an earlier lockstep trained it, or another user does
  kBroken,    // a file of it cannot be read
};
std::string_view name(RunState state);  // "running", ...

struct RunSummary {
  std::filesystem::path folder;
  std::string name;  // run.name
  RunState state = RunState::kUnknown;
  std::string problem;  // of a failed or a broken one
  std::string model;
  std::uint64_t parameters = 0;  // 0: not known
  std::int64_t step = 0;         // the last one that metrics have
  std::int64_t steps = 0;        // of the whole run; 0: not known
  std::optional<double> loss;    // of that step
  struct Validation {
    std::int64_t step = 0;
    double loss = 0;
  };
  std::optional<Validation> validation;       // the last one
  std::optional<Validation> best_validation;  // the lowest
  std::optional<double> tokens_per_second;    // the mean over all steps
  std::optional<std::int64_t> started;        // seconds since 1970, of its first process
};

// Never throws: what cannot be read makes it a broken one.
RunSummary summarise_run(const std::filesystem::path& folder) noexcept;

// The folders of runs in `folder` and below, or itself, sorted; not those within runs, nor behind
// symbolic links. Folders that cannot be read are left out. Throws Error(kInvalidArgument) where
// `folder` is none.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder);

}  // namespace lockstep::train
