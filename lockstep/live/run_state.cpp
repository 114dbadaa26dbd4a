#include "lockstep/live/run_state.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/train/observe/run_record.h"

namespace lockstep::live {
namespace {

constexpr double kLongSilence = 120;  // seconds
constexpr std::size_t kMostBegins = 1000;

template <class Value>
Value member(const nlohmann::ordered_json& object, const char* key, Value otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if constexpr (std::is_same_v<Value, std::string>) {
    return found->is_string() ? found->template get<std::string>() : otherwise;
  } else {
    return found->is_number() ? found->template get<Value>() : otherwise;
  }
}

}  // namespace

bool RunEvents::add(std::string_view line) {
  const auto event = nlohmann::ordered_json::parse(line, nullptr, false);
  if (!event.is_object()) return false;
  const auto kind = member<std::string>(event, "event", "");
  const auto time = member<double>(event, "time", 0);
  if (kind == "begin") {
    begun = true;
    ended = false;
    began = time;
    host = member<std::string>(event, "host", "");
    pid_space = member<std::string>(event, "pid_space", "");
    first_step = member<std::int64_t>(event, "first_step", 1);
    if (begins.size() >= kMostBegins) begins.erase(begins.begin() + 1);  // the first one stays
    begins.push_back({.time = time,
                      .first_step = first_step,
                      .workers = member<std::int64_t>(event, "workers", 1),
                      .strategy = member<std::string>(event, "strategy", "")});
  } else if (kind == "end") {
    ended = true;
    ended_at = time;
    seconds = member<double>(event, "seconds", 0);
    reason = member<std::string>(event, "reason", "");
    message = member<std::string>(event, "message", "");
  }
  return !kind.empty();
}

std::string_view name(RunState state) {
  constexpr std::array<std::string_view, 7> kNames = {
      "waiting", "running", "finished", "interrupted", "failed", "gone", "unknown"};
  return kNames[static_cast<std::size_t>(state)];
}

// The kernel lists every lock with the file's device and inode.
bool is_locked(const std::filesystem::path& folder) {
  struct stat info {};
  if (::stat((folder / "lock").c_str(), &info) != 0) return false;
  const std::string wanted =
      fmt::format(" {:02x}:{:02x}:{} ", major(info.st_dev), minor(info.st_dev), info.st_ino);
  // Some file systems show another device there than in stat().
  const std::string inode = fmt::format(":{} ", info.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    if (line.find("FLOCK") == std::string::npos || line.find("->") != std::string::npos) continue;
    if (line.find(wanted) != std::string::npos || line.find(inode) != std::string::npos)
      return true;
  }
  return false;
}

RunState state_of(const RunEvents& events, const std::filesystem::path& folder, double silent) {
  if (!events.begun) return is_locked(folder) ? RunState::kRunning : RunState::kWaiting;
  if (events.ended) {
    if (events.reason == "finished") return RunState::kFinished;
    return events.reason == "failed" ? RunState::kFailed : RunState::kInterrupted;
  }
  if (is_locked(folder)) return RunState::kRunning;
  const bool visible = events.host == train::host_name() && events.pid_space == train::pid_space();
  if (visible) return RunState::kGone;
  return silent < kLongSilence ? RunState::kRunning : RunState::kUnknown;
}

}  // namespace lockstep::live
