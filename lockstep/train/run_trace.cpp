#include "lockstep/train/run_trace.h"

#include <algorithm>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/parallel/clock_offset.h"
#include "lockstep/parallel/gathered.h"
#include "lockstep/train/trace_file.h"

namespace lockstep::train {
namespace {

using parallel::TraceSpan;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::int64_t first_begin(const std::vector<TraceSpan>& spans) {
  const auto first = std::ranges::min_element(spans, {}, &TraceSpan::begin);
  return first == spans.end() ? kNever : first->begin;
}

std::filesystem::path write_alone(const std::filesystem::path& path, int rank,
                                  const std::vector<TraceSpan>& spans, std::int64_t shift) {
  const std::string events = trace_events(rank, spans, shift);
  write_trace(path, std::span(&events, 1));
  return path;
}

}  // namespace

std::filesystem::path write_run_trace(RunGroup& group, parallel::Strategy& strategy,
                                      const std::filesystem::path& folder) {
  const std::vector<TraceSpan> spans = strategy.trace().spans();
  if (const std::uint64_t lost = strategy.trace().lost(); lost > 0) {
    log_warn("{} spans of train.trace_steps found no room in the trace; ask for fewer steps", lost);
  }
  if (group.world() == nullptr)
    return write_alone(trace_path(folder), 0, spans, -first_begin(spans));
  if (!strategy.in_lockstep()) {
    std::error_code none;
    if (!std::filesystem::is_directory(folder, none)) return {};
    // As they are: ranks of one machine read one clock.
    return write_alone(trace_path(folder, group.rank()), group.rank(), spans, 0);
  }
  Communicator& world = *group.world();
  // Now, not at the start: clocks drift, and the steps that are kept are the last ones.
  const std::int64_t offset = parallel::clock_offset(world);
  const std::int64_t mine = first_begin(spans);
  const std::int64_t first = mine == kNever ? kNever : mine + offset;
  const auto firsts = parallel::gathered<std::int64_t>(world, std::span(&first, 1));
  const std::int64_t origin = *std::ranges::min_element(firsts);
  const auto events =
      parallel::gathered_texts_at(0, world, trace_events(group.rank(), spans, offset - origin));
  if (!group.leads()) return {};
  write_trace(trace_path(folder), events);
  return trace_path(folder);
}

}  // namespace lockstep::train
