// Closed forms of the costs of algorithms. The functions are exact for every shape; tests compare
// them with the verifier's counts.
#pragma once

#include <string_view>

#include "lockstep/comm/schedule/schedule.h"

namespace lockstep::schedule {

// The letters of the texts.
inline constexpr std::string_view kFormulaLetters =
    "N ranks, S the vector, k segments, p the largest power of two up to N, h the height of a tree "
    "(log2 N, rounded down for odd N, up for even N), M nodes of up to m ranks, a x b x c a grid";

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
