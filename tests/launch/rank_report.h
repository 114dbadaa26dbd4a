// What a rank of a launched test program (tests/comm/rank_program.cpp and others) wrote about the
// error that ended it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "tests/launch/launched.h"

namespace lockstep::testing {

struct RankReport {
  ErrorCode code = ErrorCode::kSystem;
  std::string ranks;
  std::chrono::nanoseconds when{};
  std::string message;
};

// Nothing where it writes none within `most`.
inline std::optional<RankReport> report_of(const Launched& job, int rank,
                                           std::chrono::seconds most) {
  const std::string name = "error-" + std::to_string(rank);
  if (!eventually([&] { return job.has_file(name); }, most)) return std::nullopt;
  std::istringstream text(read_text(job.folder() / name));
  RankReport report;
  int code = 0;
  std::int64_t nanoseconds = 0;
  text >> code >> report.ranks >> nanoseconds;
  std::getline(text >> std::ws, report.message);
  report.code = static_cast<ErrorCode>(code);
  report.when = std::chrono::nanoseconds(nanoseconds);
  return report;
}

}  // namespace lockstep::testing
