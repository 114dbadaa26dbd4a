#include "lockstep/train/checkpoint/unfinished.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "lockstep/train/checkpoint/manifest.h"

namespace lockstep::train {

namespace fs = std::filesystem;

UnfinishedCheckpoint::UnfinishedCheckpoint(const CheckpointFolder& folder, std::int64_t step,
                                           RunGroup group)
    : rank_(group.rank()),
      workers_(group.size()),
      path_(folder.stage_by_all(folder.path(step), group, staged_)) {
  group.together([&] { check_is_seen(path_, ErrorCode::kSystem); });
}

fs::path UnfinishedCheckpoint::my_file() const {
  return path_ / (workers_ > 1 ? states_file_of(rank_, workers_) : std::string(kStatesFile));
}

io::FileHash UnfinishedCheckpoint::write(const nn::Replica& replica,
                                         const std::function<void(std::size_t block)>& has_read,
                                         StateSnapshot* snapshot) const {
  io::SyncedFile file(my_file());
  file.write(io::parted_safetensors(state_parts(replica)).header);
  write_states(replica, file, has_read, snapshot);
  return file.finish();
}

io::FileHash UnfinishedCheckpoint::write(const io::SafetensorsParts& states) const {
  return io::write_synced(my_file(), states.header, states.data);
}

void UnfinishedCheckpoint::commit(const CheckpointExtras& extras,
                                  std::span<const io::FileHash> states,
                                  const std::optional<io::FileHash>& residuals) {
  Manifest manifest{
      .state = extras.state, .files = {}, .data = extras.data, .fingerprint = extras.fingerprint};
  if (extras.validation_loss && std::isfinite(*extras.validation_loss)) {
    manifest.validation_loss = extras.validation_loss;
  }
  for (int i = 0; i < workers_; ++i) {
    manifest.files[workers_ > 1 ? states_file_of(i, workers_) : std::string(kStatesFile)] =
        states[static_cast<std::size_t>(i)];
  }
  const auto add = [&](std::string_view name, std::string_view text) {
    manifest.files[std::string(name)] = io::write_synced(path_ / name, text);
  };
  add(kConfigFile, extras.config);
  if (!extras.tokenizer.empty()) add(kTokenizerFile, extras.tokenizer);
  if (residuals) manifest.files[std::string(kResidualsFile)] = *residuals;
  io::write_synced(path_ / kManifestFile, format_manifest(manifest));
  staged_.value().commit();
}

void check_is_seen(const fs::path& folder, ErrorCode code) {
  std::error_code none;
  if (fs::is_directory(folder, none)) return;
  fail(code,
       "{} does not exist on this rank, though rank 0 has just created it. Sharded states need a "
       "run.dir on storage that all ranks share",
       folder.string());
}

std::string packed(const io::FileHash& hash) { return fmt::format("{} {}", hash.bytes, hash.hash); }

io::FileHash unpacked_hash(std::string_view text) {
  io::FileHash hash;
  const std::size_t space = std::min(text.find(' '), text.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + space, hash.bytes);
  if (error != std::errc() || space == text.size()) {
    fail(ErrorCode::kProtocol, "'{}' is not the size and hash of a states file", text);
  }
  hash.hash = text.substr(space + 1);
  return hash;
}

}  // namespace lockstep::train
