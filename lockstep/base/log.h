// What lockstep says on stderr while it runs.
//
// One line per message: time, level, rank if it is known, text. LOCKSTEP_LOG=debug|info|warn|error
// sets the least level that is shown; without it that is warn. Any thread may log; a message below
// the level costs one load and is not formatted.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Overrides LOCKSTEP_LOG for the whole process.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);

// From now on every line of this process says the rank; a negative one removes it.
void set_log_rank(int rank);

// Writes the line, whatever the level in force.
void write_log(LogLevel level, std::string_view message);

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (!log_enabled(LogLevel::kDebug)) return;
  write_log(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (!log_enabled(LogLevel::kInfo)) return;
  write_log(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  if (!log_enabled(LogLevel::kWarn)) return;
  write_log(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  if (!log_enabled(LogLevel::kError)) return;
  write_log(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
