#include "lockstep/train/checkpoint/check.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/file.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/checkpoint/state_tensors.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

void check_hash(const fs::path& file, const io::FileHash& found, const io::FileHash& expected) {
  if (found.bytes != expected.bytes) {
    reject_damaged(file, fmt::format("it has {} bytes instead of {}", found.bytes, expected.bytes));
  }
  if (found != expected) {
    reject_damaged(file,
                   fmt::format("its hash is {}, but {} was saved", found.hash, expected.hash));
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
  if (!fs::exists(file, none)) reject_damaged(file, "it is missing");
}

// Whether this process may read a file or folder. What it may not read is not damaged.
void check_is_permitted(const fs::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() >= 0 || (errno != EACCES && errno != EPERM)) return;
  const std::string problem = std::generic_category().message(errno);
  fail(ErrorCode::kSystem,
       "{} cannot be read: {}. It may well be whole: let this user read it, or move it away to use "
       "an earlier checkpoint",
       path.string(), problem);
}

void check_all_is_permitted(const fs::path& folder) {
  check_is_permitted(folder);
  check_is_permitted(folder / kManifestFile);
  std::error_code none;
  for (fs::directory_iterator at(folder, none); !none && at != fs::directory_iterator();
       at.increment(none)) {
    check_is_permitted(at->path());
  }
}

// All but the content of its states.
Checkpoint open_files(const fs::path& folder, std::optional<std::int64_t> step) {
  const fs::path manifest_file = folder / kManifestFile;
  check_is_there(manifest_file);
  const std::string text = read_file(manifest_file);
  const Manifest manifest = parse_manifest(text, manifest_file.string());
  for (const auto& [name, expected] : manifest.files) {
    check_is_there(folder / name);
    // Compares sizes first: a wrong size saves hashing the whole file.
    std::error_code none;
    const std::uint64_t bytes = fs::file_size(folder / name, none);
    if (bytes != expected.bytes) check_hash(folder / name, {bytes, ""}, expected);
  }
  if (const auto residuals = manifest.files.find(kResidualsFile);
      residuals != manifest.files.end()) {
    check_hash(folder / kResidualsFile, io::hash_of_file(folder / kResidualsFile),
               residuals->second);
  }
  Checkpoint checkpoint{.folder = folder,
                        .state = manifest.state,
                        .config = read_checked(folder, manifest, kConfigFile),
                        .tokenizer = read_checked(folder, manifest, kTokenizerFile),
                        .states = {},
                        .id = io::hash_of(text).hash,
                        .validation_loss = manifest.validation_loss};
  for (const std::string& name : states_files(manifest)) {
    checkpoint.states[name] = manifest.files.at(name);
  }
  if (step && manifest.state.steps != *step) {
    reject_damaged(folder, fmt::format("it holds step {}", manifest.state.steps));
  }
  return checkpoint;
}

std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, hash] : checkpoint.states) names.push_back(name);
  return names;
}

// The files of states that this worker looks at.
std::vector<std::string> files_to_check(const Checkpoint& checkpoint,
                                        const CheckpointReaders& readers) {
  std::vector<std::string> names = names_of(checkpoint);
  if (readers.replica == nullptr || names.size() == 1) return names;
  const io::PartedSafetensors files(checkpoint.folder, names);
  std::vector<bool> wanted(names.size());
  for (const std::size_t file : files_of_parts(files, *readers.replica)) wanted[file] = true;
  const auto workers = static_cast<std::size_t>(readers.group.size());
  for (auto i = static_cast<std::size_t>(readers.group.rank()); i < names.size(); i += workers) {
    wanted[i] = true;
  }
  std::vector<std::string> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (wanted[i]) found.push_back(names[i]);
  }
  return found;
}

void check_states(const Checkpoint& checkpoint, const CheckpointReaders& readers) {
  for (const std::string& name : files_to_check(checkpoint, readers)) {
    const fs::path file = checkpoint.folder / name;
    check_hash(file, io::hash_of_file(file), checkpoint.states.at(name));
  }
}

constexpr std::string_view kSharedStorage =
    "With sharded states every rank reads its own shard: put the folder on storage that all ranks "
    "share, under the same path";

// Called if the leader found it intact.
void check_others_have_it(const std::vector<std::optional<Error>>& opened, const fs::path& folder) {
  for (std::size_t rank = 1; rank < opened.size(); ++rank) {
    if (!opened[rank]) continue;
    fail(ErrorCode::kInvalidArgument,
         "rank {} cannot read the checkpoint {}, which rank 0 can: {}. {}", rank, folder.string(),
         opened[rank]->what(), kSharedStorage);
  }
}

void check_others_have_the_same(const std::vector<std::string>& ids, const fs::path& folder) {
  for (std::size_t rank = 1; rank < ids.size(); ++rank) {
    if (ids[rank] == ids[0]) continue;
    fail(ErrorCode::kInvalidArgument,
         "the checkpoint {} of rank {} is not that of rank 0: their {} differ. {}", folder.string(),
         rank, kManifestFile, kSharedStorage);
  }
}

}  // namespace

void reject_damaged(const fs::path& file, std::string_view why) {
  fail(ErrorCode::kProtocol, "{} is damaged: {}", file.string(), why);
}

CheckedCheckpoint check_checkpoint(const fs::path& folder, std::optional<std::int64_t> step,
                                   const CheckpointReaders& readers) {
  RunGroup group = readers.group;
  group.together([&] { check_all_is_permitted(folder); });
  Checkpoint checkpoint;
  const auto opened = group.outcomes([&] { checkpoint = open_files(folder, step); });
  if (opened[0]) {
    if (opened[0]->code() == ErrorCode::kUnsupported) throw *opened[0];
    return {.checkpoint = {}, .damage = opened[0]};
  }
  check_others_have_it(opened, folder);
  check_others_have_the_same(group.texts(checkpoint.id), folder);
  for (const auto& found : group.outcomes([&] { check_states(checkpoint, readers); })) {
    if (found) return {.checkpoint = {}, .damage = found};
  }
  return {.checkpoint = std::move(checkpoint), .damage = {}};
}

std::unique_ptr<io::TensorSource> open_states(const Checkpoint& checkpoint) {
  const std::vector<std::string> names = names_of(checkpoint);
  if (names.size() == 1 && names.front() == kStatesFile) {
    return std::make_unique<io::SafetensorsFile>(checkpoint.folder / kStatesFile);
  }
  return std::make_unique<io::PartedSafetensors>(checkpoint.folder, names);
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

}  // namespace lockstep::train
