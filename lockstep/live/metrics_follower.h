// Follows metrics.jsonl of a run: sums over all steps, curves of bounded size, and rows of any part
// of the run on demand.
//
// All steps are read once, in bounded memory. An index remembers where in the file some of the
// lines begin, so that a part of the run can be read again in full. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/live/line_tail.h"
#include "lockstep/live/metrics_row.h"
#include "lockstep/live/series_table.h"

namespace lockstep::live {

// Over all steps that are in the file.
struct MetricsTotals {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::int64_t rows = 0;
  std::int64_t unreadable = 0;  // lines
  std::int64_t skipped = 0;
  double first_step = kNone;
  MetricsRow last;  // row; without values where there is none
  double tokens = 0;
  double most_memory_bytes = 0;
  struct Validation {
    double step = 0;
    double loss = 0;
  };
  std::optional<Validation> last_validation;
  std::optional<Validation> best_validation;
  // Milliseconds of all steps.
  double step_ms = 0;
  double data_ms = 0;
  double checkpoint_ms = 0;
  double validation_ms = 0;
  double background_ms = 0;  // of checkpoints, beside these
  double recorded_ms() const { return step_ms + data_ms + checkpoint_ms + validation_ms; }
  // Of steps that several workers shared.
  std::int64_t shared_steps = 0;
  double waiting_ms = 0;  // of step_ms, in which a worker did not compute
  double communication_ms = 0;
  double exposed_ms = 0;
  double exposed_max_ms = 0;
  double bytes_sent = 0;
  double bytes_across = 0;
  double staleness = 0;
  double staleness_max = 0;
  std::map<int, std::int64_t> slowest;  // in how many steps each rank was
  // Of the last ten seconds or so, as the progress line has it: of steps and the data before them.
  double recent_steps = 0;
  double recent_tokens = 0;
  double recent_seconds = 0;

  MetricsTotals() { last.values.fill(kNone); }
  void add(const MetricsRow& row);
  // Checkpoints and validations are spread over all steps. 0: not known.
  double seconds_per_step() const;
};

class MetricsFollower {
 public:
  explicit MetricsFollower(const std::filesystem::path& folder);

  // Reads about so many bytes of what is new. Returns whether there is more.
  bool poll(std::size_t most_bytes);

  const MetricsTotals& totals() const { return totals_; }
  // Of all steps, and of those with a validation.
  const SeriesTable& steps() const { return steps_; }
  const SeriesTable& validations() const { return validations_; }
  // How much of recorded_ms() steps from `step` on took, as precisely as the index is.
  double recorded_ms_from(double step) const;

  enum class Axis : std::uint8_t { kStep, kTokens, kSeconds };
  // What the steps between `from` and `to` of that axis are read with again, by any thread; the
  // follower may be used meanwhile.
  struct Part {
    std::filesystem::path path;
    ino_t inode = 0;
    std::uint64_t offset = 0;
    Place before;            // of the row before the first one that is read
    std::uint64_t rows = 0;  // about as many
    Axis axis = Axis::kStep;
    double from = 0;
    double to = 0;
    // Both tables, in at most about `points` buckets; nothing where the file is another one now.
    struct Tables {
      SeriesTable steps;
      SeriesTable validations;
    };
    std::optional<Tables> read(std::size_t points) const;
  };
  Part part(Axis axis, double from, double to) const;

  // The columns of steps().
  static std::vector<std::string_view> columns();

 private:
  struct Mark {
    std::uint64_t offset = 0;
    std::uint64_t row = 0;
    Place before;
  };
  void add(const MetricsRow& row, std::uint64_t offset);
  void begin_again();

  std::filesystem::path path_;
  LineTail tail_;
  MetricsTotals totals_;
  Place place_;
  SeriesTable steps_;
  SeriesTable validations_;
  std::vector<Mark> marks_;
  std::uint64_t rows_per_mark_ = 64;
};

}  // namespace lockstep::live
