// A trace of a worker: spans of time on lanes.
//
//   const TraceScope scope(
//       trace, {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "bucket"});
//
// records the time from here to the end of the block. A disabled trace costs a branch. An enabled
// one keeps the last steps, with at most kMostSpans spans; the oldest are dropped first.
//
// Spans of one lane do not overlap: a lane belongs to one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/system/clock.h"

namespace lockstep::parallel {

enum class TraceLane : std::uint8_t {
  kStep,           // a step from end to end
  kCompute,        // blocks' forward and backward, the update
  kCommunication,  // what is sent and received, beside compute
  kWaiting,        // in which compute stands still
  kTiers,          // what is copied between tiers, beside compute
  kHost,           // what the host updates, beside compute
  kOperations,     // the operations of compute, one by one, on a GPU
};
inline constexpr std::size_t kTraceLanes = 7;
std::string_view name(TraceLane lane);  // "step", "compute", "communication", "waiting", ...

struct TraceSpan {
  TraceLane lane = TraceLane::kCompute;
  std::string kind;        // "forward": the kind of work
  std::string of;          // "layer.3"; empty: there is only one of it
  std::int64_t begin = 0;  // nanoseconds of the worker's steady clock
  std::int64_t end = 0;
  std::int64_t step = 0;
  std::uint64_t bytes = 0;     // that are sent; 0: none, or not known
  std::uint64_t elements = 0;  // of gradients

  std::string name() const { return of.empty() ? kind : kind + ' ' + of; }
};

// The trace of one rank; the times of all ranks are of the same clock.
struct RankTrace {
  int rank = 0;
  std::vector<TraceSpan> spans;
};

// Nanoseconds of the steady clock.
std::int64_t trace_time(SteadyClock::time_point when);
std::int64_t trace_now();

// Any thread may add spans; keep() and begin_step() are for one thread.
class Trace {
 public:
  static constexpr std::size_t kMostSpans = std::size_t{1} << 18;

  // Starts recording; keeps the last `steps` steps. Call it before other threads use the trace.
  void keep(std::int64_t steps, std::size_t most_spans = kMostSpans);
  bool on() const { return steps_ > 0; }

  // Later spans belong to this step. Ignored if the trace is off.
  void begin_step(std::int64_t step);
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }

  void add(TraceSpan span);

  // By lane, and in the order in which they began.
  std::vector<TraceSpan> spans() const;
  // The number of spans of kept steps that were dropped because of kMostSpans.
  std::uint64_t lost() const;

 private:
  std::int64_t steps_ = 0;
  std::size_t most_spans_ = kMostSpans;
  std::atomic<std::int64_t> step_ = 0;
  mutable std::mutex mutex_;
  std::deque<TraceSpan> spans_;  // in the order in which they ended
  std::uint64_t lost_ = 0;
};

// The name of a span; read when the scope begins.
struct TraceLabel {
  TraceLane lane = TraceLane::kCompute;
  std::string_view kind = {};
  std::string_view of = {};
  std::int64_t index = -1;  // a number after `of`, if there are several
  std::uint64_t bytes = 0;
  std::uint64_t elements = 0;
};

// A span from construction to destruction. The trace must outlive it.
class TraceScope {
 public:
  TraceScope(Trace& trace, const TraceLabel& label) : trace_(trace) {
    if (trace.on()) begin(label);
  }
  ~TraceScope() {
    if (span_) end();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  // Sets the bytes of the span afterwards; returns them.
  std::uint64_t sent(std::uint64_t bytes) {
    if (span_) span_->bytes = bytes;
    return bytes;
  }

 private:
  void begin(const TraceLabel& label);
  void end();

  Trace& trace_;
  std::optional<TraceSpan> span_;
};

}  // namespace lockstep::parallel
