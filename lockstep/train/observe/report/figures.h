// The chart of a run's loss.
#pragma once

#include "lockstep/train/observe/report/chart.h"
#include "lockstep/train/observe/report/history.h"

namespace lockstep::train {

// The loss of every step, smoothed where they are many, and of validations.
Chart loss_chart(const RunHistory& history);

}  // namespace lockstep::train
