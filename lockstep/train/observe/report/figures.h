// The charts of a report.
#pragma once

#include <string>

#include "lockstep/train/observe/report/history.h"

namespace lockstep::train {

// Loss, throughput, gradient norm, learning rate, and the loss scale where there is one.
std::string figure_sections(const RunHistory& history);

}  // namespace lockstep::train
