// The parts of a report in which bytes and seconds are broken down.
#pragma once

#include <string>

#include "lockstep/train/observe/report/page.h"

namespace lockstep::train {

// What this process took besides its steps: to begin, to write samples.
double other_seconds(const Report& report);
// The same plus all steps of the run.
double all_seconds(const Report& report);

// What the plan gives each class, as bars, and what the process has had.
std::string memory_section(const Report& report);
// Computing, waiting for data, checkpoints, validation, and what is left of the process's time.
std::string time_section(const Report& report);

}  // namespace lockstep::train
