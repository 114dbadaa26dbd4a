// Checks that a checkpoint (train/checkpoint/checkpoint.h) is complete and undamaged, by one
// process or by all workers together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// The readers of a checkpoint.
struct CheckpointReaders {
  RunGroup group{nullptr};  // all workers, together
  const nn::Replica* replica =
      nullptr;  // each worker reads the shards of this replica; nullptr: everything
  Warn warn;
};

// Exactly one of the two is set.
struct CheckedCheckpoint {
  std::optional<Checkpoint> checkpoint;
  std::optional<Error> damage;
};

// Reads every byte and compares hashes: each worker checks the files that it will read and its
// share of all files. Damage found by any worker counts for all. Throws Error(kUnsupported) for an
// unknown version, and Error(kInvalidArgument), with rank and file, if another worker does not see
// the checkpoint of the leader.
CheckedCheckpoint check_checkpoint(const std::filesystem::path& folder,
                                   std::optional<std::int64_t> step,
                                   const CheckpointReaders& readers);

// Throws Error(kProtocol).
[[noreturn]] void reject_damaged(const std::filesystem::path& file, std::string_view why);

}  // namespace lockstep::train
