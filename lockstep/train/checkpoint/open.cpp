#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/io/staged_folder.h"
#include "lockstep/train/checkpoint/check.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/checkpoint/state_tensors.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// The leader's.
std::vector<std::int64_t> steps_of_all(const CheckpointFolder& folder, RunGroup group) {
  std::string mine;
  group.together([&] {
    if (group.leads()) mine = fmt::format("{}", fmt::join(folder.steps(), " "));
  });
  const std::string text = group.texts(mine).front();
  std::vector<std::int64_t> steps;
  for (const std::string_view digits : split_text(text, ' ')) {
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (error == std::errc()) steps.push_back(step);
  }
  return steps;
}

// The newest that is whole; nothing where there are none at all. `but` says what cannot be done
// where all are damaged, and what to do.
std::optional<Checkpoint> newest_whole(const CheckpointFolder& folder,
                                       const CheckpointReaders& readers, std::string_view but) {
  std::string reasons;
  for (const std::int64_t step : steps_of_all(folder, readers.group)) {
    CheckedCheckpoint checked = check_checkpoint(folder.path(step), step, readers);
    if (checked.checkpoint) return std::move(checked.checkpoint);
    const char* why = checked.damage->what();
    if (readers.warn) {
      readers.warn(fmt::format("skipping the damaged checkpoint of step {}: {}", step, why));
    }
    reasons += fmt::format("\n  step {}: {}", step, why);
  }
  if (reasons.empty()) return std::nullopt;
  fail(ErrorCode::kProtocol, "every checkpoint is damaged, and {}:{}", but, reasons);
}

// Whether a folder is that of one checkpoint; or of a run. Throws for one that is neither.
bool is_checkpoint(const fs::path& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) {
    fail(ErrorCode::kInvalidArgument, "the folder {} does not exist", path.string());
  }
  if (fs::exists(path / kManifestFile, none)) return true;
  for (const auto& entry : fs::directory_iterator(path, none)) {
    if (!is_states_file(entry.path().filename().string())) continue;
    reject_damaged(path, "it has no manifest.json");
  }
  if (!fs::is_directory(path / kCheckpoints, none)) {
    fail(ErrorCode::kInvalidArgument,
         "{} is neither the folder of a run (with {}/ in it) nor a checkpoint (with {} in it)",
         path.string(), kCheckpoints, kManifestFile);
  }
  return false;
}

Checkpoint open_by(const fs::path& path, const CheckpointReaders& readers) {
  RunGroup group = readers.group;
  std::optional<CheckpointFolder> run;  // nothing: one checkpoint
  group.together([&] {
    if (!is_checkpoint(path)) run.emplace(path);
  });
  const std::vector<std::string> kinds = group.texts(run ? "a run" : "a checkpoint");
  for (std::size_t rank = 1; rank < kinds.size(); ++rank) {
    if (kinds[rank] == kinds[0]) continue;
    fail(ErrorCode::kMismatch, "run.init_from is the folder of {} at rank 0, but of {} at rank {}",
         kinds[0], kinds[rank], rank);
  }
  if (!run) {
    CheckedCheckpoint checked = check_checkpoint(path, {}, readers);
    if (!checked.checkpoint) throw *checked.damage;
    return *std::move(checked.checkpoint);
  }
  if (group.leads()) io::remove_stale(path / kCheckpoints);
  std::optional<Checkpoint> found = newest_whole(
      *run, readers, "no model can be read; restore a copy of one, or name another folder");
  if (!found) {
    fail(ErrorCode::kInvalidArgument, "the run in {} has saved no checkpoint yet", path.string());
  }
  return *std::move(found);
}

}  // namespace

std::optional<TrainState> CheckpointFolder::restore(nn::Replica& replica, const Warn& warn,
                                                    RunGroup group) const {
  if (group.leads()) io::remove_stale(run_ / kCheckpoints);
  const CheckpointReaders readers{.group = group, .replica = &replica, .warn = warn};
  const std::optional<Checkpoint> checkpoint = newest_whole(
      *this, readers,
      "starting again would discard the run; restore a copy of one, or choose another run.dir");
  if (!checkpoint) return std::nullopt;
  group.together([&] {
    read_state_tensors(*open_states(*checkpoint), replica, checkpoint->state.updates == 0);
    replica.round_parameters();
  });
  return checkpoint->state;
}

Checkpoint open_checkpoint(const fs::path& run_or_checkpoint, const Warn& warn) {
  return open_by(run_or_checkpoint, {.group = RunGroup(nullptr), .replica = nullptr, .warn = warn});
}

void read_parameters(const Checkpoint& checkpoint, const nn::FlatParameters& flat,
                     const Tensor& buffer) {
  read_parameter_tensors(*open_states(checkpoint), flat, buffer);
}

void load_checkpoint(const fs::path& run_or_checkpoint, nn::Replica& replica, const Warn& warn,
                     RunGroup group) {
  const Checkpoint checkpoint =
      open_by(run_or_checkpoint, {.group = group, .replica = &replica, .warn = warn});
  group.together([&] {
    read_parameter_tensors(*open_states(checkpoint), replica);
    replica.round_parameters();
  });
}

}  // namespace lockstep::train
