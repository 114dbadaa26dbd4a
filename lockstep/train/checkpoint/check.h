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

// Reads and compares every byte: a worker those of the files that it will read, and those of its
// share of all files. What is wrong at any worker is wrong for all. Throws Error(kUnsupported) for
// a version that this build does not know, Error(kSystem) for files that this user may not read,
// and Error(kInvalidArgument) where the leader has a checkpoint and another worker does not, or has
// another one: names rank and file.
CheckedCheckpoint check_checkpoint(const std::filesystem::path& folder,
                                   std::optional<std::int64_t> step,
                                   const CheckpointReaders& readers);

// Throws Error(kProtocol).
[[noreturn]] void reject_damaged(const std::filesystem::path& file, std::string_view why);

}  // namespace lockstep::train
