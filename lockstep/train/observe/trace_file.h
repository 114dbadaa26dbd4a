// A run's trace as a file that Perfetto (ui.perfetto.dev) and chrome://tracing open: the JSON of
// Chrome's trace events.
//
//   {"displayTimeUnit":"ms","traceEvents":[
//   {"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0"}},
//   {"ph":"M","name":"thread_name","pid":0,"tid":1,"args":{"name":"compute"}},
//   {"ph":"X","name":"forward layer.0","cat":"forward","pid":0,"tid":1,"ts":12.345,"dur":678.900,
//    "args":{"step":7}},
//   ...
//   ]}
//
// A process is a rank, a thread one of its lanes. Times are microseconds with three decimals, on
// one clock; spans stand rank by rank, lane by lane, in the order in which they began.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/parallel/trace/trace.h"

namespace lockstep::train {

using parallel::RankTrace;

std::filesystem::path trace_path(const std::filesystem::path& folder);  // trace.json

// One rank's events, each a line, with commas between them. `shift` is added to all times.
std::string trace_events(int rank, std::span<const parallel::TraceSpan> spans, std::int64_t shift);

// Writes the events of all ranks, atomically.
void write_trace(const std::filesystem::path& path, std::span<const std::string> events_of_ranks);

// Reads the file, ranks in order. Throws Error(kInvalidArgument) for another file, and what
// read_file() throws.
std::vector<RankTrace> read_trace(const std::filesystem::path& path);

}  // namespace lockstep::train
