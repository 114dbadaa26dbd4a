// Log messages on stderr.
//
// One line per message: time, level, rank if it is known, text. LOCKSTEP_LOG=debug|info|warn|error
// sets the lowest level that is shown; the default is warn. Any thread may log; a message below the
// level costs one load and is not formatted.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Overrides LOCKSTEP_LOG for the whole process.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);

// Adds the rank to every later line of this process; a negative rank removes it.
void set_log_rank(int rank);

// Writes the line regardless of the current level.
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
