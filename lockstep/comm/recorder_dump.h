// What flight recorders tell when a communicator breaks, whoever keeps them.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

// Of an operation that started, and perhaps ended, so many seconds ago:
// "took 12 us, ended 3 ms ago", or "started 2 s ago, not ended".
std::string describe_times(double started, std::optional<double> ended);

// Says it in the log, and writes it to `path` unless that is empty; where it cannot be written the
// log says so. Never throws.
void dump_record(const std::string& text, const std::string& path);

}  // namespace lockstep
