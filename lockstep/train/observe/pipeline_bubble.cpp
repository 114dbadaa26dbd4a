#include "lockstep/train/observe/pipeline_bubble.h"

#include <algorithm>
#include <limits>

namespace lockstep::train {
namespace {

using parallel::TraceLane;
using parallel::TraceSpan;

// What a step of some ranks has computed, in nanoseconds.
struct Computed {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  std::int64_t busy = 0;
  std::size_t ranks = 0;
};

bool is_computation(const TraceSpan& span) {
  return span.lane == TraceLane::kCompute &&
         (span.kind == "forward" || span.kind == "backward" || span.kind == "weights");
}

// StageRun records it before a computation.
bool is_wait_for_stage(const TraceSpan& span) {
  return span.lane == TraceLane::kWaiting && span.kind == "wait for" &&
         (span.of.starts_with("activation") || span.of.starts_with("gradient"));
}

std::map<std::int64_t, Computed> steps_of(const parallel::RankTrace& rank) {
  std::map<std::int64_t, Computed> steps;
  for (const TraceSpan& span : rank.spans) {
    if (!is_computation(span)) continue;
    Computed& step = steps[span.step];
    step.begin = std::min(step.begin, span.begin);
    step.end = std::max(step.end, span.end);
    step.busy += span.end - span.begin;
  }
  return steps;
}

}  // namespace

std::map<std::int64_t, double> pipeline_bubbles(std::span<const parallel::RankTrace> ranks) {
  std::map<std::int64_t, Computed> steps;
  bool waits = false;
  for (const parallel::RankTrace& rank : ranks) {
    waits = waits || std::ranges::any_of(rank.spans, is_wait_for_stage);
    for (const auto& [number, mine] : steps_of(rank)) {
      Computed& step = steps[number];
      step.begin = std::min(step.begin, mine.begin);
      step.end = std::max(step.end, mine.end);
      step.busy = std::max(step.busy, mine.busy);
      ++step.ranks;
    }
  }
  std::map<std::int64_t, double> bubbles;
  for (const auto& [number, step] : steps) {
    if (!waits || step.ranks < ranks.size() || step.busy == 0) continue;
    bubbles[number] =
        static_cast<double>(step.end - step.begin - step.busy) / static_cast<double>(step.busy);
  }
  return bubbles;
}

}  // namespace lockstep::train
