#include "lockstep/train/run/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/communication/gathered.h"
#include "lockstep/parallel/trace/clock_offset.h"
#include "lockstep/train/observe/trace_file.h"

namespace lockstep::train {
namespace {

using parallel::TraceSpan;

constexpr std::int64_t kNoSpans = std::numeric_limits<std::int64_t>::max();

std::int64_t first_begin(const std::vector<TraceSpan>& spans) {
  const auto first = std::ranges::min_element(spans, {}, &TraceSpan::begin);
  return first == spans.end() ? kNoSpans : first->begin;
}

// Writes the spans of all ranks that reported, with times from the first span on.
std::filesystem::path write_ranks(const std::filesystem::path& folder,
                                  std::span<const parallel::RankTrace> ranks) {
  std::int64_t origin = kNoSpans;
  for (const auto& rank : ranks) origin = std::min(origin, first_begin(rank.spans));
  std::vector<std::string> events;
  for (const auto& rank : ranks) events.push_back(trace_events(rank.rank, rank.spans, -origin));
  write_trace(trace_path(folder), events);
  return trace_path(folder);
}

void warn_of_missing(std::span<const parallel::RankTrace> ranks, int workers) {
  for (int rank = 0; rank < workers; ++rank) {
    if (std::ranges::count(ranks, rank, &parallel::RankTrace::rank) > 0) continue;
    log_warn("rank {} did not send its trace in time: the trace is without it", rank);
  }
}

std::filesystem::path gather_and_write(RunGroup& group, parallel::Strategy& strategy,
                                       const std::filesystem::path& folder) {
  if (!strategy.in_lockstep()) {
    const std::vector<parallel::RankTrace> ranks = strategy.gather_traces();
    if (!group.leads()) return {};
    warn_of_missing(ranks, group.size());
    return write_ranks(folder, ranks);
  }
  const std::vector<TraceSpan> spans = strategy.trace().spans();
  if (group.world() == nullptr) {
    const parallel::RankTrace alone{.rank = 0, .spans = spans};
    return write_ranks(folder, std::span(&alone, 1));
  }
  Communicator& world = *group.world();
  // Now, not at the start: clocks drift, and the steps that are kept are the last ones.
  const std::int64_t offset = parallel::clock_offset(world);
  const std::int64_t mine = first_begin(spans);
  const std::int64_t first = mine == kNoSpans ? kNoSpans : mine + offset;
  const auto firsts = parallel::gathered<std::int64_t>(world, std::span(&first, 1));
  const std::int64_t origin = *std::ranges::min_element(firsts);
  const auto events =
      parallel::gathered_texts_at(0, world, trace_events(group.rank(), spans, offset - origin));
  if (!group.leads()) return {};
  write_trace(trace_path(folder), events);
  return trace_path(folder);
}

}  // namespace

RunTrace::RunTrace(const RunOptions& options, RunGroup& group, parallel::Strategy& strategy,
                   const Audience& audience)
    : options_(options), group_(group), strategy_(strategy), audience_(audience) {
  if (options_.trace) strategy_.trace().keep(options_.trace_steps);
}

void RunTrace::begin(std::int64_t steps_done) {
  if (!options_.trace || !strategy_.in_lockstep()) return;
  begin_ = steps_done;
  next_ = steps_done + options_.trace_steps;
}

void RunTrace::after_step(std::int64_t steps_done) {
  if (steps_done < next_) return;
  next_ += next_ - begin_;
  write();
}

void RunTrace::end() {
  if (!options_.trace) return;
  if (const std::uint64_t lost = strategy_.trace().lost(); lost > 0) {
    log_warn("the trace is full and lacks {} spans; lower train.trace_steps", lost);
  }
  file_ = write();
  if (file_.empty()) return;
  audience_.notice(fmt::format("the trace of the last steps is in {}", file_.string()));
}

std::filesystem::path RunTrace::write() {
  try {
    return gather_and_write(group_, strategy_, options_.dir);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSystem) throw;
    audience_.warning(fmt::format("the trace could not be written: {}", error.what()));
    return {};
  }
}

}  // namespace lockstep::train
