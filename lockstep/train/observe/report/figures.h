// The charts of a report.
#pragma once

#include <string>

#include "lockstep/train/observe/report/chart.h"
#include "lockstep/train/observe/report/history.h"

namespace lockstep::train {

// Loss, throughput, gradient norm, learning rate, and the loss scale where there is one.
std::string figure_sections(const RunHistory& history);

// The loss of every step, smoothed where they are many, and of validations.
Chart loss_chart(const RunHistory& history);

}  // namespace lockstep::train
