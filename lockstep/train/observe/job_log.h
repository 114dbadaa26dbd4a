// The lines that the ranks of a run write, in its log.jsonl beside the run's own events
// (run_record.h), which rank 0 records:
//
//   output    rank (none: a spare) and text: a line of standard output or standard error
//   launcher  text: a message of the launcher
//
// For the launcher of the ranks. Lines are held until rank 0 has begun the run, because a command
// that is refused changes nothing in the folder of an earlier run. A job may write at any speed for
// any time: a rank's lines are recorded up to kMostLines, and a long one without its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/append_file.h"

namespace lockstep::train {

class JobLog {
 public:
  static constexpr std::size_t kMostLines = 10'000;  // of a rank, of a process of the launcher
  static constexpr std::size_t kLongestLine = 2000;

  explicit JobLog(const std::filesystem::path& folder);
  ~JobLog() { write_held(); }
  JobLog(const JobLog&) = delete;
  JobLog& operator=(const JobLog&) = delete;

  // Rank 0 leads: of its lines the run records those that matter.
  void add_output(std::optional<int> rank, std::string_view line);
  void add_launcher(std::string_view line);

 private:
  static constexpr std::size_t kMostHeld = 1000;

  void add(std::string record);
  void write_held();  // where the run has begun
  bool has_begun() const;

  std::filesystem::path path_;
  std::uintmax_t bytes_before_ = 0;  // of the file, when this process began
  std::map<int, std::size_t> lines_;
  std::vector<std::string> held_;
  AppendFile log_;
  bool has_failed_ = false;
};

}  // namespace lockstep::train
