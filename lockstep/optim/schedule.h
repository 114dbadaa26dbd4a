// The learning rate of every step.
//
//   rate |     ______                     warm-up: from rate / warmup in equal steps to rate
//        |    /      \__     cosine       then constant, or down to floor * rate,
//        |   /   \      \_                in a line or along half a cosine,
//        |  /       \     \____________   where it stays from `steps` on
//        | /           \__/
//        +-+----+-----------+---------> step
//          1  warmup      steps
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/base/config/config.h"

namespace lockstep::optim {

enum class Decline : std::uint8_t { kConstant, kLinear, kCosine };
std::string_view name(Decline decline);  // "constant", "linear", "cosine"

struct ScheduleOptions {
  double rate = 6e-4;
  int warmup = 0;  // steps
  Decline decline = Decline::kConstant;
  int steps = 0;       // at which the floor is reached; needed by a decline
  double floor = 0.1;  // a fraction of rate
};

// Declares the keys schedule.*.
void bind(Config& config, ScheduleOptions& options);

// Throws Error(kInvalidArgument) for a decline that would end before the warm-up has.
void check(const ScheduleOptions& options);

// Of step 1, 2, ... A pure function, so that a run that comes back goes on as it would have.
double rate_at(const ScheduleOptions& options, std::int64_t step);

}  // namespace lockstep::optim
