// A schedule as a picture. Three views of the same data:
//
//   rounds   ranks side by side, time runs down: what each rank has, and the messages of every
//            round as arrows from row to row
//   ring     ranks on a circle, one circle for every round
//   tree     ranks on the tree along which they reduce, and on the same tree for the way back
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/comm/schedule/instance.h"

namespace lockstep::cli {

enum class ScheduleView { kRounds, kRing, kTree };

// "rounds", "ring", "tree"; throws Error(kInvalidArgument) with what there is.
ScheduleView schedule_view_from_name(std::string_view text);
// The view that shows an algorithm best.
ScheduleView usual_view(const schedule::Schedule& schedule);

// Throws Error(kInvalidArgument) for a schedule that the view cannot show.
std::string draw_schedule(const schedule::Schedule& schedule, ScheduleView view);

}  // namespace lockstep::cli
