#include "lockstep/comm/recorder_dump.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/file/file.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text/units.h"

namespace lockstep {

std::string describe_times(double started, std::optional<double> ended) {
  if (!ended) return fmt::format("started {} ago, not ended", format_seconds(started));
  return fmt::format("took {}, ended {} ago", format_seconds(std::max(started - *ended, 0.)),
                     format_seconds(*ended));
}

void dump_record(const std::string& text, const std::string& path) {
  log_error("{}", text);
  if (path.empty()) return;
  try {
    write_file(path, text);
  } catch (const std::exception& failure) {
    log_warn(
        "the flight recorder's dump is only in this log: {} (comm.recorder_dir names a folder "
        "that exists and can be written)",
        failure.what());
  }
}

}  // namespace lockstep
