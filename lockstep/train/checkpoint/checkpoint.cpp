#include "lockstep/train/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/io/staged_folder.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/checkpoint/state_tensors.h"
#include "lockstep/train/checkpoint/unfinished.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", kStep, step); }

// Nothing for a name that step_name() does not give.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || step_name(step) != name) return std::nullopt;
  return step;
}

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

// The names in a folder; none where there is no such folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::exists(folder, error)) return names;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) fail_errno(fmt::format("cannot read {}", folder.string()), error.value());
  return names;
}

void make_synced_folder(const fs::path& folder) {
  if (is_folder(folder)) return;
  const fs::path parent = fs::absolute(folder).parent_path();
  make_synced_folder(parent);
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) fail_errno(fmt::format("cannot make {}", folder.string()), error.value());
  io::sync_folder(parent);
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path run) : run_(std::move(run)) {
  const fs::path folder = run_ / kCheckpoints;
  std::error_code none;
  if (fs::exists(folder, none) && !is_folder(folder)) {
    fail(ErrorCode::kInvalidArgument, "{} is not a folder; choose another folder for the run",
         folder.string());
  }
  for (const std::string& name : names_in(folder)) {
    if (step_of(name) || io::is_staged_name(name)) continue;
    fail(ErrorCode::kInvalidArgument,
         "{} holds '{}', which lockstep did not write; choose another folder for the run",
         folder.string(), name);
  }
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(run_ / kCheckpoints)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

fs::path CheckpointFolder::path(std::int64_t step) const {
  return run_ / kCheckpoints / step_name(step);
}

void CheckpointFolder::save(const nn::Replica& replica, const CheckpointExtras& extras,
                            const CheckpointOptions& keep) {
  UnfinishedCheckpoint checkpoint(*this, extras.state.steps);
  const io::FileHash hash = checkpoint.write(replica);
  checkpoint.commit(extras, std::span(&hash, 1));
  remove_old(extras.state.steps, keep);
}

void CheckpointFolder::save(const nn::FlatParameters& flat, const nn::States& states,
                            const CheckpointExtras& extras, const CheckpointOptions& keep) {
  UnfinishedCheckpoint checkpoint(*this, extras.state.steps);
  const io::FileHash hash = checkpoint.write(io::safetensors_parts(state_tensors(flat, states)));
  checkpoint.commit(extras, std::span(&hash, 1));
  remove_old(extras.state.steps, keep);
}

void CheckpointFolder::remove_old(std::int64_t newest, const CheckpointOptions& keep) const {
  std::vector<std::int64_t> best;
  if (keep.keep_best > 0) {
    for (const Validated& one : by_validation()) {
      if (one.step <= newest) best.push_back(one.step);
    }
    best.resize(std::min(best.size(), static_cast<std::size_t>(keep.keep_best)));
  }
  int kept = 0;
  for (const std::int64_t step : steps()) {
    if (step > newest || kept++ < std::max(keep.keep_last, 1)) continue;
    if (keep.keep_every > 0 && step % keep.keep_every == 0) continue;
    if (std::ranges::find(best, step) != best.end()) continue;
    io::remove_folder(path(step));
  }
}

fs::path CheckpointFolder::stage_by_all(const fs::path& target, RunGroup group,
                                        std::optional<io::StagedFolder>& staged) const {
  std::string name;
  group.together([&] {
    if (!group.leads()) return;
    make_synced_folder(run_ / kCheckpoints);
    io::remove_stale(run_ / kCheckpoints);
    staged.emplace(target);
    name = staged->path().filename().string();
  });
  // Each has its own path to the folder.
  return run_ / kCheckpoints / group.texts(name).front();
}

std::optional<fs::path> CheckpointFolder::residuals_of(std::int64_t step) const {
  fs::path file = path(step) / kResidualsFile;
  std::error_code none;
  if (!fs::exists(file, none)) return std::nullopt;
  return file;
}

std::string CheckpointFolder::data_of(std::int64_t step) const {
  const fs::path file = path(step) / kManifestFile;
  return parse_manifest(read_file(file), file.string()).data;
}

std::optional<std::int64_t> CheckpointFolder::newest_compared() const {
  for (const std::int64_t step : steps()) {
    const fs::path file = path(step) / kManifestFile;
    try {
      if (!parse_manifest(read_file(file), file.string()).fingerprint.empty()) return step;
    } catch (const Error&) {
      continue;  // damaged, or removed meanwhile
    }
  }
  return std::nullopt;
}

void CheckpointFolder::check_seen_by_all(RunGroup group) const {
  std::optional<io::StagedFolder> staged;  // the leader's
  const fs::path folder = stage_by_all(run_ / kCheckpoints / "seen", group, staged);
  group.together([&] { check_is_seen(folder, ErrorCode::kInvalidArgument); });
}

void CheckpointFolder::save_by_all(const nn::Replica& replica, const CheckpointExtras& extras,
                                   const CheckpointOptions& keep, RunGroup group) {
  UnfinishedCheckpoint checkpoint(*this, extras.state.steps, group);
  io::FileHash mine;
  group.together([&] { mine = checkpoint.write(replica); });
  std::vector<io::FileHash> hashes;
  for (const std::string& text : group.texts(packed(mine))) hashes.push_back(unpacked_hash(text));
  group.together([&] {
    if (!group.leads()) return;
    checkpoint.commit(extras, hashes);
    remove_old(extras.state.steps, keep);
  });
}

}  // namespace lockstep::train
