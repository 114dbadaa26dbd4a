#include "lockstep/train/observe/step_lines.h"

#include <fstream>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/log.h"

namespace lockstep::train {

void keep_steps_before(std::int64_t first_step, const std::filesystem::path& path,
                       const StepOfLine& step_of) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return;  // a device or a pipe has no past
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kSystem, "cannot read {}", path.string());
  std::string kept;
  const auto bytes = std::filesystem::file_size(path, none);
  if (!none) kept.reserve(bytes);
  std::string line;
  bool changed = false;
  std::size_t unreadable = 0;
  while (std::getline(file, line)) {
    const bool torn = file.eof();  // no line's end; whole all the same if it can be read
    const auto step = step_of(line);
    if (step && *step < first_step) {
      kept += line;
      kept += '\n';
      changed |= torn;
    } else {
      changed = true;
      if (!step && !torn) ++unreadable;
    }
  }
  if (unreadable > 0) {
    log_warn("removed {} unreadable lines from {}", unreadable, path.string());
  }
  if (changed) write_file(path, kept);
}

}  // namespace lockstep::train
