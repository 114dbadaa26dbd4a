// Whether a run is running, by what its folder says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::live {

// The events of log.jsonl that decide, of the last process.
struct RunEvents {
  bool begun = false;
  double began = 0;  // seconds since 1970, as the next
  bool ended = false;
  double ended_at = 0;
  double seconds = 0;  // of that process, where it ended
  std::string reason;  // of its end
  std::string message;
  std::string host;
  std::string pid_space;
  std::int64_t first_step = 1;
  // Of all processes, for people: where a run was continued, and by how many.
  struct Begin {
    double time = 0;
    std::int64_t first_step = 1;
    std::int64_t workers = 1;
    std::string strategy;
  };
  std::vector<Begin> begins;

  // A line of log.jsonl. Returns whether it is an event of any kind.
  bool add(std::string_view line);
};

enum class RunState : std::uint8_t {
  kWaiting,  // no process has begun it
  kRunning,
  kFinished,
  kInterrupted,
  kFailed,
  kGone,     // its process ended without a word: it was killed
  kUnknown,  // begun on another machine, and silent for a while
};
std::string_view name(RunState state);

// Whether a process of this machine holds the lock of a run's folder. Does not touch the lock, so
// that no process that wants it finds it taken.
bool is_locked(const std::filesystem::path& folder);

// `silent` is for how long the metrics have not grown, in seconds.
RunState state_of(const RunEvents& events, const std::filesystem::path& folder, double silent);

}  // namespace lockstep::live
