// `lockstep bench offload`: the cost of states or activations in a file.
//
// Moving B bytes a step at bandwidth bw, one after the other with computing for T seconds, leaves
// of the speed
//
//   efficiency = T / (T + B / bw) = ait bw / (ait bw + peak),    ait = FLOPs of a step / B,
//                                                               peak = FLOPs of a step / T
//
// The bench takes T from a run with everything on the device, B and bw from a run that moves them
// with nothing overlapped, and shows the formula beside what that run measured; and beside both
// what is left when transfers are overlapped. The runs take steps by turns in one process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep::bench {

struct OffloadBench {
  // The options of the runs with a file; the run on the device drops offload.*. If no key places
  // anything in a file, the optimizer states are in one.
  train::TrainOptions options;
  int steps = 5;  // timed, of each run
};

struct OffloadRow {
  std::string name;
  double step_seconds = 0;  // the median
  double tokens_per_second = 0;
  double efficiency = 1;      // by the speed on the device alone
  double file_bytes = 0;      // a step
  double waited_seconds = 0;  // a step, for these
};

struct OffloadReport {
  std::vector<OffloadRow> rows;  // on the device, one after the other, overlapped
  double parameters = 0;
  double device_bytes = 0;        // of the runs with a file, as planned
  double whole_device_bytes = 0;  // of the run without
  double bandwidth = 0;           // bytes a second, measured in the second run
  double formula = 0;             // its efficiency by the formula

  static constexpr double kTolerance = 0.15;
  bool is_as_predicted() const;  // the second run is within the tolerance of the formula
  bool overlap_wins() const;     // the third is above it
};

// Throws what a run throws.
OffloadReport run_offload(const OffloadBench& bench);

}  // namespace lockstep::bench
