// Follows the folder of a run, and describes it to readers in messages.
//
// A message is a JSON object. A reader that applies all of them in order, from none on, has all
// that the page shows. Every message has "type" and "run", the id:
//
//   run       folder, facts (facts.json), begins (of log.jsonl); whenever a process began or ended
//   status    state and figures; whenever anything has changed
//   series    table ("steps" or "validations") and SeriesTable::json(); replaces what the reader
//             has from "from" on
//   samples   from, samples; likewise
//   log       from, lines; likewise
//   ranks     ranks.json, or null
//   timeline  step, svg, colours, note: of trace.json
//
// Reads nothing but the run's folder, and only files that lockstep names. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/live/metrics_follower.h"
#include "lockstep/live/run_files.h"
#include "lockstep/live/run_state.h"
#include "lockstep/live/small_file.h"

namespace lockstep::live {

class RunFollower {
 public:
  RunFollower(std::string id, std::filesystem::path folder);

  const std::string& id() const { return id_; }
  const std::filesystem::path& folder() const { return folder_; }

  // Reads what is new: of the metrics about so many bytes. Returns whether there is more.
  bool poll(std::size_t most_bytes);

  // What a reader has.
  struct Seen {
    std::uint64_t run = 0, status = 0, ranks = 0, timeline = 0;  // versions
    std::uint64_t steps_epoch = 0, validations_epoch = 0;
    std::size_t steps = 0, validations = 0;  // whole buckets
    std::uint64_t rows = 0;
    std::uint64_t samples_epoch = 0, samples = 0;
    std::uint64_t log_epoch = 0, log = 0;
  };
  // The messages that bring the reader up to date, and what it has then.
  std::vector<std::string> news(Seen& seen) const;

  // A part of the run's steps, exact where it has at most `points`; of the same members as series
  // messages: {"steps":{...},"validations":{...}}. "null" while the file changes.
  std::string part(MetricsFollower::Axis axis, double from, double to, std::size_t points) const;

  // For other descriptions of the run.
  struct View {
    const MetricsTotals& totals;
    const RunFigures& figures;
    const RankFigures& ranks;
    const RunEvents& events;
    RunState state;
    // The rates of the last seconds; 0: not known, as the next.
    double tokens_per_second = 0;
    double seconds_per_step = 0;
    double flops_per_second = 0;
    double utilization = 0;  // of the machine's peak
    double seconds_left = 0;
  };
  template <class Visit>
  auto visit(Visit visit) const {
    const std::lock_guard lock(mutex_);
    return visit(view());
  }

 private:
  struct Lines {
    std::uint64_t epoch = 1;
    std::uint64_t first = 0;  // number of the first one that is kept
    std::deque<std::string> kept;
    void add(std::string line, std::size_t most);
    void clear();
    std::uint64_t end() const { return first + kept.size(); }
    // A message with what is new, if anything.
    std::optional<std::string> news(std::string_view head, std::string_view name,
                                    std::uint64_t& epoch, std::uint64_t& seen) const;
  };
  View view() const;
  void poll_small_files();
  void poll_lines();
  void poll_trace();
  std::string head(std::string_view type) const;
  std::string run_message() const;
  std::string status_message() const;

  std::string id_;
  std::filesystem::path folder_;
  mutable std::mutex mutex_;
  MetricsFollower metrics_;
  LineTail log_tail_;
  LineTail sample_tail_;
  SmallFile facts_file_;
  SmallFile ranks_file_;
  std::string facts_;  // the files, compact; empty: not there
  std::string ranks_;
  RunFigures figures_;
  RankFigures rank_figures_;
  RunEvents events_;
  RunState state_;
  Lines log_;
  Lines samples_;
  std::string timeline_;  // the message; empty: none
  FileStamp trace_;
  std::uint64_t run_version_ = 1;
  std::uint64_t status_version_ = 1;
  std::uint64_t ranks_version_ = 0;
  std::uint64_t timeline_version_ = 0;
  double last_change_ = 0;  // of the metrics, seconds since 1970
  bool reading_ = true;     // what there was at first
};

}  // namespace lockstep::live
