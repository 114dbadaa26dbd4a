// The report of a bench of collectives: a table, and an array of JSON objects.
#pragma once

#include <span>
#include <string>

#include "lockstep/bench/collectives/measure.h"
#include "lockstep/bench/collectives/streaming.h"

namespace lockstep::bench {

// The heading of a table, the lines of one size, and what to say after all sizes.
std::string table_heading(Collective op, DType dtype, int ranks);
std::string table_lines(std::span<const Measurement> one_size);
std::string summary(std::span<const Measurement> one_table);

// The share of the machine's streaming bandwidth that symmetric all_reduce reaches at the largest
// size: a fused all_reduce must read and write all of S on every rank, and nothing more. Empty
// when there is no such measurement, or only of buffers that caches could hold.
std::string streaming_share(std::span<const Measurement> one_table, const Streaming& streaming);

std::string to_json(std::span<const Measurement> all);

}  // namespace lockstep::bench
