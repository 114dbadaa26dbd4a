#include "lockstep/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/io/staged_folder.h"
#include "lockstep/train/manifest.h"
#include "lockstep/train/state_tensors.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCheckpoints = "checkpoints";
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

[[noreturn]] void reject_file(const fs::path& file, std::string_view why) {
  fail(ErrorCode::kProtocol, "{} is damaged: {}", file.string(), why);
}

void check_hash(const fs::path& file, const io::FileHash& found, const io::FileHash& expected) {
  if (found.bytes != expected.bytes) {
    reject_file(file, fmt::format("it has {} bytes instead of {}", found.bytes, expected.bytes));
  }
  if (found != expected) {
    reject_file(
        file, fmt::format("its hash is {}, that of what was saved {}", found.hash, expected.hash));
  }
}

std::string read_checked(const fs::path& folder, const Manifest& manifest, std::string_view name) {
  const auto expected = manifest.files.find(name);
  if (expected == manifest.files.end()) return {};
  const fs::path file = folder / name;
  std::string text = read_file(file);
  check_hash(file, io::hash_of(text), expected->second);
  return text;
}

void check_is_there(const fs::path& file) {
  std::error_code none;
  if (!fs::exists(file, none)) reject_file(file, "it is missing");
}

// Reads every byte of a checkpoint, and compares.
Checkpoint open_checked(const fs::path& folder) {
  const fs::path manifest_file = folder / kManifestFile;
  check_is_there(manifest_file);
  const Manifest manifest = parse_manifest(read_file(manifest_file), manifest_file.string());
  for (const auto& [name, expected] : manifest.files) {
    check_is_there(folder / name);
    // Where the size tells, 1.5 GB need not be read.
    std::error_code none;
    const std::uint64_t bytes = fs::file_size(folder / name, none);
    if (bytes != expected.bytes) check_hash(folder / name, {bytes, ""}, expected);
  }
  const fs::path states = folder / kStatesFile;
  check_hash(states, io::hash_of_file(states), manifest.files.find(kStatesFile)->second);
  if (const auto residuals = manifest.files.find(kResidualsFile);
      residuals != manifest.files.end()) {
    check_hash(folder / kResidualsFile, io::hash_of_file(folder / kResidualsFile),
               residuals->second);
  }
  return {.folder = folder,
          .state = manifest.state,
          .config = read_checked(folder, manifest, kConfigFile),
          .tokenizer = read_checked(folder, manifest, kTokenizerFile)};
}

// The newest that is whole; nothing where there are none at all.
std::optional<Checkpoint> newest_whole(const CheckpointFolder& folder, const Warn& warn) {
  std::string reasons;
  for (const std::int64_t step : folder.steps()) {
    try {
      Checkpoint checkpoint = open_checked(folder.path(step));
      if (checkpoint.state.steps != step) {
        reject_file(checkpoint.folder, fmt::format("it holds step {}", checkpoint.state.steps));
      }
      return checkpoint;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnsupported) throw;
      if (warn) warn(fmt::format("passing over the checkpoint of step {}: {}", step, error.what()));
      reasons += fmt::format("\n  step {}: {}", step, error.what());
    }
  }
  if (reasons.empty()) return std::nullopt;
  fail(
      ErrorCode::kProtocol,
      "every checkpoint is damaged, and beginning anew would throw the run away; put a copy of one "
      "back, or take another folder:{}",
      reasons);
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

void write_checkpoint(const fs::path& folder, const nn::FlatParameters& flat,
                      const nn::States& states, const CheckpointExtras& extras) {
  Manifest manifest{.state = extras.state, .files = {}};
  const auto add = [&](std::string_view name, std::string_view text,
                       std::span<const Tensor> tensors = {}) {
    manifest.files[std::string(name)] = io::write_synced(folder / name, text, tensors);
  };
  const io::SafetensorsParts parts = io::safetensors_parts(state_tensors(flat, states));
  add(kStatesFile, parts.header, parts.data);
  add(kConfigFile, extras.config);
  if (!extras.tokenizer.empty()) add(kTokenizerFile, extras.tokenizer);
  if (extras.write_residuals) {
    manifest.files[std::string(kResidualsFile)] = extras.write_residuals(folder / kResidualsFile);
  }
  io::write_synced(folder / kManifestFile, format_manifest(manifest));
}

}  // namespace

void bind(Config& config, CheckpointOptions& options) {
  config.bind("checkpoint.every", options.every,
              "Steps between checkpoints; 0: only at the end, and when the run is interrupted.",
              {.min = 0});
  config.bind("checkpoint.keep_last", options.keep_last, "The newest so many checkpoints stay.",
              {.min = 1});
  config.bind("checkpoint.keep_every", options.keep_every,
              "Checkpoints of steps that this divides stay for good; 0: none.", {.min = 0});
}

CheckpointFolder::CheckpointFolder(fs::path run) : run_(std::move(run)) {
  const fs::path folder = run_ / kCheckpoints;
  std::error_code none;
  if (fs::exists(folder, none) && !is_folder(folder)) {
    fail(ErrorCode::kInvalidArgument, "{} is no folder; take another folder for the run",
         folder.string());
  }
  for (const std::string& name : names_in(folder)) {
    if (step_of(name) || io::is_staged_name(name)) continue;
    fail(ErrorCode::kInvalidArgument,
         "{} holds '{}', which no run of lockstep wrote; take another folder for the run",
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
  save(replica.flat(), replica.states(), extras, keep);
}

void CheckpointFolder::save(const nn::FlatParameters& flat, const nn::States& states,
                            const CheckpointExtras& extras, const CheckpointOptions& keep) {
  make_synced_folder(run_ / kCheckpoints);
  io::remove_stale(run_ / kCheckpoints);
  io::StagedFolder staged(path(extras.state.steps));
  write_checkpoint(staged.path(), flat, states, extras);
  staged.commit();

  int kept = 0;
  for (const std::int64_t step : steps()) {
    if (step > extras.state.steps || kept++ < std::max(keep.keep_last, 1)) continue;
    if (keep.keep_every > 0 && step % keep.keep_every == 0) continue;
    io::remove_folder(path(step));
  }
}

std::optional<TrainState> CheckpointFolder::restore(nn::Replica& replica, const Warn& warn) const {
  io::remove_stale(run_ / kCheckpoints);
  const std::optional<Checkpoint> checkpoint = newest_whole(*this, warn);
  if (!checkpoint) return std::nullopt;
  read_state_tensors(io::SafetensorsFile(checkpoint->folder / kStatesFile), replica.flat(),
                     replica.states(), checkpoint->state.updates == 0);
  replica.round_parameters();
  return checkpoint->state;
}

std::optional<fs::path> CheckpointFolder::residuals_of(std::int64_t step) const {
  fs::path file = path(step) / kResidualsFile;
  std::error_code none;
  if (!fs::exists(file, none)) return std::nullopt;
  return file;
}

Checkpoint open_checkpoint(const fs::path& run_or_checkpoint, const Warn& warn) {
  const fs::path& path = run_or_checkpoint;
  if (!is_folder(path)) {
    fail(ErrorCode::kInvalidArgument, "there is no folder {}", path.string());
  }
  std::error_code none;
  if (fs::exists(path / kManifestFile, none)) return open_checked(path);
  if (fs::exists(path / kStatesFile, none)) reject_file(path, "it has no manifest.json");
  if (!is_folder(path / kCheckpoints)) {
    fail(ErrorCode::kInvalidArgument,
         "{} is neither the folder of a run (with {}/ in it) nor a checkpoint (with {} in it)",
         path.string(), kCheckpoints, kManifestFile);
  }
  const CheckpointFolder folder(path);
  io::remove_stale(path / kCheckpoints);
  std::optional<Checkpoint> found = newest_whole(folder, warn);
  if (!found) {
    fail(ErrorCode::kInvalidArgument, "the run in {} has saved no checkpoint yet", path.string());
  }
  return *std::move(found);
}

std::string stored_text(const fs::path& run_or_checkpoint, std::string_view name) {
  std::error_code none;
  std::vector<fs::path> folders;
  if (fs::exists(run_or_checkpoint / kManifestFile, none)) {
    folders.push_back(run_or_checkpoint);
  } else {
    const CheckpointFolder folder(run_or_checkpoint);
    for (const std::int64_t step : folder.steps()) folders.push_back(folder.path(step));
  }
  for (const fs::path& folder : folders) {
    try {
      const fs::path file = folder / kManifestFile;
      return read_checked(folder, parse_manifest(read_file(file), file.string()), name);
    } catch (const Error&) {  // damaged: who restores it says so
    }
  }
  return "";
}

void read_parameters(const Checkpoint& checkpoint, const nn::FlatParameters& flat,
                     const Tensor& row) {
  read_parameter_tensors(io::SafetensorsFile(checkpoint.folder / kStatesFile), flat, row);
}

}  // namespace lockstep::train
