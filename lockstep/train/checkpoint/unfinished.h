// A checkpoint that is being written: a staging folder that is renamed on commit, or removed.
//
//   UnfinishedCheckpoint checkpoint(folder, step, group);     all workers: the leader makes it
//   hash = checkpoint.write(replica);                         each its own, in any thread
//   checkpoint.commit(extras, hashes of all);                 the leader, in any thread
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/io/staged_folder.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/state_tensors.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

class UnfinishedCheckpoint {
 public:
  // By a `group` that shards its states, each of which writes a file; else by one worker.
  // Removes what killed processes left. Throws Error(kSystem), at all of the group where one does
  // not see the folder.
  UnfinishedCheckpoint(const CheckpointFolder& folder, std::int64_t step,
                       RunGroup group = RunGroup(nullptr));

  // Where files go.
  const std::filesystem::path& path() const { return path_; }

  // Writes the file of states of this worker and says of each block that it has been read. Throws
  // Error(kSystem), and what `has_read` and reading from a file of states throw.
  io::FileHash write(const nn::Replica& replica,
                     const std::function<void(std::size_t block)>& has_read = {},
                     StateSnapshot* snapshot = nullptr) const;
  // The same of tensors that belong to no replica.
  io::FileHash write(const io::SafetensorsParts& states) const;

  // Writes what is missing and puts it in its place. `states` are the files of all workers;
  // `residuals` were written already. Earlier checkpoints stay: CheckpointFolder::remove_old().
  // Throws Error(kSystem).
  void commit(const CheckpointExtras& extras, std::span<const io::FileHash> states,
              const std::optional<io::FileHash>& residuals = std::nullopt);

 private:
  std::filesystem::path my_file() const;

  int rank_;
  int workers_;
  std::optional<io::StagedFolder> staged_;  // of the leader, which removes it
  std::filesystem::path path_;
};

// Throws Error(code) if this worker does not see a folder that the leader has just made.
void check_is_seen(const std::filesystem::path& folder, ErrorCode code);

// A hash as text for other workers, and back. The latter throws Error(kProtocol).
std::string packed(const io::FileHash& hash);
io::FileHash unpacked_hash(std::string_view text);

}  // namespace lockstep::train
