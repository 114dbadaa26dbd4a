#include "lockstep/base/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>

namespace lockstep {
namespace {

constexpr spdlog::level::level_enum kSpdlogLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                       spdlog::level::warn, spdlog::level::err};
constexpr std::string_view kNames[] = {"debug", "info", "warn", "error"};
constexpr LogLevel kDefaultLevel = LogLevel::kWarn;

std::optional<LogLevel> level_from_name(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

// Everything that logging remembers; made at the first message.
struct State {
  spdlog::logger logger{"lockstep", std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>()};
  std::atomic<LogLevel> level = kDefaultLevel;
  std::atomic<int> rank = -1;

  State() {
    logger.set_level(spdlog::level::trace);  // log_enabled() has decided
    logger.set_pattern("%H:%M:%S.%e %^%l%$ %v");
    const char* wanted = std::getenv("LOCKSTEP_LOG");
    if (wanted == nullptr || *wanted == '\0') return;
    if (const auto named = level_from_name(wanted)) {
      level = *named;
    } else {
      logger.warn("LOCKSTEP_LOG is '{}'; it may be {}", wanted, fmt::join(kNames, ", "));
    }
  }
};

// Never destroyed: threads may log while the process ends.
State& state() {
  static State& instance = *new State;
  return instance;
}

}  // namespace

void set_log_level(LogLevel level) { state().level.store(level, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) { return level >= state().level.load(std::memory_order_relaxed); }

void set_log_rank(int rank) { state().rank.store(rank, std::memory_order_relaxed); }

void write_log(LogLevel level, std::string_view message) {
  State& log = state();
  const int rank = log.rank.load(std::memory_order_relaxed);
  const auto spdlog_level = kSpdlogLevels[static_cast<std::size_t>(level)];
  if (rank < 0) {
    log.logger.log(spdlog_level, "{}", message);
  } else {
    log.logger.log(spdlog_level, "rank {}: {}", rank, message);
  }
}

}  // namespace lockstep
