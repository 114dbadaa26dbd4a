#include "lockstep/parallel/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

namespace lockstep::parallel {

std::string_view name(TraceLane lane) {
  constexpr std::string_view kNames[kTraceLanes] = {"step",  "compute", "communication", "waiting",
                                                    "tiers", "host",    "operations"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::int64_t trace_time(SteadyClock::time_point when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

std::int64_t trace_now() { return trace_time(SteadyClock::now()); }

void Trace::keep(std::int64_t steps, std::size_t most_spans) {
  steps_ = steps;
  most_spans_ = most_spans;
}

void Trace::begin_step(std::int64_t step) {
  if (!on()) return;
  step_.store(step, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  while (!spans_.empty() && spans_.front().step <= step - steps_) spans_.pop_front();
}

void Trace::add(TraceSpan span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
  if (spans_.size() <= most_spans_) return;
  spans_.pop_front();
  ++lost_;
}

std::vector<TraceSpan> Trace::spans() const {
  std::unique_lock lock(mutex_);
  std::vector<TraceSpan> spans(spans_.begin(), spans_.end());
  lock.unlock();
  std::ranges::stable_sort(spans, {},
                           [](const TraceSpan& span) { return std::tuple(span.lane, span.begin); });
  return spans;
}

std::uint64_t Trace::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void TraceScope::begin(const TraceLabel& label) {
  span_ = TraceSpan{.lane = label.lane,
                    .kind = std::string(label.kind),
                    .of = std::string(label.of),
                    .begin = 0,
                    .end = 0,
                    .step = trace_.step(),
                    .bytes = label.bytes,
                    .elements = label.elements};
  if (label.index >= 0) {
    if (!span_->of.empty()) span_->of += ' ';
    span_->of += fmt::to_string(label.index);
  }
  span_->begin = trace_now();
}

void TraceScope::end() {
  span_->end = trace_now();
  trace_.add(std::move(*span_));
}

}  // namespace lockstep::parallel
