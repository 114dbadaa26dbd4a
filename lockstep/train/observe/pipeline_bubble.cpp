#include "lockstep/train/observe/pipeline_bubble.h"

#include <algorithm>
#include <limits>
#include <vector>

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
  std::vector<std::map<std::int64_t, Computed>> of_ranks;
  bool waits = false;
  for (const parallel::RankTrace& rank : ranks) {
    waits = waits || std::ranges::any_of(rank.spans, is_wait_for_stage);
    for (const auto& [number, mine] : of_ranks.emplace_back(steps_of(rank))) {
      Computed& step = steps[number];
      step.begin = std::min(step.begin, mine.begin);
      step.end = std::max(step.end, mine.end);
      step.busy = std::max(step.busy, mine.busy);
      ++step.ranks;
    }
  }
  const auto is_whole = [&](std::int64_t number) {
    const auto found = steps.find(number);
    return found != steps.end() && found->second.ranks == ranks.size();
  };
  std::map<std::int64_t, double> bubbles;
  for (const auto& [number, step] : steps) {
    if (!waits || !is_whole(number) || step.busy == 0) continue;
    std::int64_t length = step.end - step.begin;
    const std::int64_t before = number - 1;
    if (is_whole(before) && step.begin < steps.at(before).end) {
      length = 0;
      for (const auto& mine : of_ranks) {
        length = std::max(length, mine.at(number).end - mine.at(before).end);
      }
    }
    bubbles[number] = static_cast<double>(length - step.busy) / static_cast<double>(step.busy);
  }
  return bubbles;
}

}  // namespace lockstep::train
