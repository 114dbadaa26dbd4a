// The grid of a sweep: all combinations of the values that settings list.
//
//   optimizer.learning_rate=1e-3,3e-4 model.layers=2,4 train.steps=100
//
// gives four points; a setting with one value is part of each of them.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

struct GridPoint {
  std::string name;                   // "learning_rate=1e-3,layers=2": a file name
  std::vector<std::string> settings;  // key=value, in the order of the arguments
};

// In the order in which the last key changes fastest. Names are different from each other. Throws
// Error(kInvalidArgument) for an argument that is no key=value, a key that is given twice, an empty
// value among several, a value that is given twice, and for more than kMostPoints.
inline constexpr std::size_t kMostPoints = 10'000;
std::vector<GridPoint> grid_of(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
