// Step schedules as text and as a picture: a row for every stage, time to the right.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/pipeline/timetable.h"
#include "lockstep/plan/pipeline/verify.h"

namespace lockstep::cli {

// A schedule that is proven and timed.
struct TimedSchedule {
  plan::StepSchedule schedule;
  plan::StepCounts counts;
  plan::Timetable table;
};

// A column for every unit of time: "stage 0  F0 F1 .  B0 -- B1 --". F is forward, B backward or the
// input gradient, W the weight gradient, - continues, . waits. Empty when there are too many
// columns for a line.
std::string timetable_text(const TimedSchedule& timed);

// The schedules below each other, on one time axis. `note` says what the times are.
std::string draw_timetables(const std::vector<TimedSchedule>& schedules, const std::string& note);

// "37.5 %"
std::string percent(double part);

}  // namespace lockstep::cli
