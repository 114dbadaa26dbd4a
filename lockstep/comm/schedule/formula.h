// Closed forms: what an algorithm costs, known without running it. Exact for every shape; the
// verifier's counts are checked against them.
//
// N ranks, S the vector (see chunk_share()), k segments, M machines, p the largest power of two
// not above N.
#pragma once

#include <string_view>

#include "lockstep/comm/schedule/schedule.h"

namespace lockstep::schedule {

struct Formula {
  Collective collective;
  std::string_view algorithm;
  std::string_view rounds_text;       // "2(N-1)"
  std::string_view sent_in_all_text;  // "2(N-1)S"
  int (*rounds)(const Shape& shape);
  double (*sent_in_all)(const Shape& shape);  // in S
};

// Every algorithm of the registry has one.
const Formula& find_formula(Collective collective, std::string_view algorithm);

}  // namespace lockstep::schedule
