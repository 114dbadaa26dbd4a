// What became of the last process that trained in a run's folder. It is part of facts.json
// (train/observe/run_record.h):
//
//   "status": "running",          until it ends: "finished", "stopped" or "failed"
//   "started": 1763500000,        seconds since 1970, of the first process of the run
//   "resumed": 1763500000,        of this one
//   "ended": 1763500120,          null: it has not ended, or was killed
//   "message": "..."              of a failure
//
// A process that is killed leaves "running"; that one is running is what the lock of the folder
// says (RunFolder::is_locked()).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::train {

struct RunStatus {
  std::string status;
  std::string name;   // run.name
  std::string model;  // "gpt2 of 4 x 128"
  std::uint64_t parameters = 0;
  std::int64_t steps = 0;  // of the whole run
  std::int64_t started = 0;
  std::int64_t resumed = 0;
  std::int64_t ended = 0;  // 0: it has not, or was killed
  std::string message;
};

// Nothing where there is none: no process has trained in the folder, or an earlier lockstep did.
// Throws Error(kProtocol) for a file that is damaged.
std::optional<RunStatus> read_status(const std::filesystem::path& folder);

}  // namespace lockstep::train
