// Output of flight recorders after an error.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

// Text for an operation that started, and perhaps ended, that many seconds ago: "took 12 us, ended
// 3 ms ago", or "started 2 s ago, not ended".
std::string describe_times(double started, std::optional<double> ended);

// Logs the text, and writes it to `path` unless that is empty; a failure to write is logged. Never
// throws.
void dump_record(const std::string& text, const std::string& path);

}  // namespace lockstep
