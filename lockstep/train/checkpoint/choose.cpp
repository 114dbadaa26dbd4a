// Which checkpoint of a run a user asks for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/manifest.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNewest = "newest";
constexpr std::string_view kBest = "best";

// "steps 1000, 2000 and 3000" of a run, for errors.
std::string steps_text(const CheckpointFolder& run) {
  std::vector<std::int64_t> steps = run.steps();
  std::ranges::reverse(steps);
  return steps.empty() ? "it has saved none yet"
                       : fmt::format("it has those of the steps {}", fmt::join(steps, ", "));
}

}  // namespace

std::vector<CheckpointFolder::Validated> CheckpointFolder::by_validation() const {
  std::vector<Validated> found;
  for (const std::int64_t step : steps()) {
    const fs::path file = path(step) / kManifestFile;
    try {
      const Manifest manifest = parse_manifest(read_file(file), file.string());
      if (manifest.validation_loss) found.push_back({step, *manifest.validation_loss});
    } catch (const Error&) {
      continue;  // damaged, or removed meanwhile
    }
  }
  std::ranges::sort(found, [](const Validated& a, const Validated& b) {
    return a.loss != b.loss ? a.loss < b.loss : a.step < b.step;
  });
  return found;
}

fs::path choose_checkpoint(const fs::path& path, std::string_view which) {
  if (which.empty() || which == kNewest) return path;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), step);
  const bool is_step = error == std::errc() && end == which.data() + which.size() && step >= 0;
  if (!is_step && which != kBest) {
    fail(ErrorCode::kInvalidArgument,
         "the checkpoint '{}' is neither newest nor best nor the number of a step", which);
  }
  std::error_code none;
  if (!fs::is_directory(path / kCheckpoints, none)) {
    fail(ErrorCode::kInvalidArgument,
         "{} is not the folder of a run with checkpoints, so '{}' cannot be chosen there. Name a "
         "run's folder, or leave the choice out",
         path.string(), which);
  }
  const CheckpointFolder run(path);
  if (is_step) {
    if (fs::is_directory(run.path(step), none)) return run.path(step);
    fail(ErrorCode::kInvalidArgument, "the run in {} has no checkpoint of step {}: {}",
         path.string(), step, steps_text(run));
  }
  const std::vector<CheckpointFolder::Validated> best = run.by_validation();
  if (best.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "no checkpoint of the run in {} was saved with a validation loss, so none is the best: "
         "{}. checkpoint.keep_best = 1 saves and keeps the best one",
         path.string(), steps_text(run));
  }
  return run.path(best.front().step);
}

}  // namespace lockstep::train
