// Scaled frequencies of rotary positions, for contexts longer than those a model was first trained
// with.
//
// Pair i of a head turns by position x theta^(-2 i / head_size). Scaling slows pairs down:
//
//   linear   all by `factor`
//   llama3   those that turn less than `low_turns` times over `original_positions` by `factor`;
//            none of those that turn more than `high_turns` times; the others in between
//
// A factor of 1 changes nothing.
#pragma once

namespace lockstep::ops {

struct RotaryScaling {
  double factor = 1;
  double original_positions = 0;  // 0: linear
  double low_turns = 1;           // `low_freq_factor` of transformers
  double high_turns = 4;          // `high_freq_factor`, over low_turns

  bool operator==(const RotaryScaling&) const = default;
};

// Radians per position, of a pair that turns by `frequency` without scaling. Also for GPUs.
constexpr double scaled_frequency(double frequency, const RotaryScaling& scaling) {
  constexpr double kTurn = 6.283185307179586476925;
  const double slow = frequency / scaling.factor;
  if (scaling.original_positions <= 0) return slow;
  const double turns = scaling.original_positions * frequency / kTurn;
  if (turns < scaling.low_turns) return slow;
  if (turns > scaling.high_turns) return frequency;
  const double share = (turns - scaling.low_turns) / (scaling.high_turns - scaling.low_turns);
  return (1 - share) * slow + share * frequency;
}

}  // namespace lockstep::ops
