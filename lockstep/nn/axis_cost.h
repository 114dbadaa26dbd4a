// What the communication of a rank inside forward and backward costs, on an axis of the mesh.
#pragma once

#include <cstdint>

namespace lockstep::nn {

struct AxisCost {
  double seconds = 0;  // in which the rank did not compute because it communicated
  std::uint64_t bytes_sent = 0;

  AxisCost operator+(const AxisCost& other) const {
    return {.seconds = seconds + other.seconds, .bytes_sent = bytes_sent + other.bytes_sent};
  }
};

}  // namespace lockstep::nn
