// `lockstep bench offload --device cuda`: a step with states on the host, beside its critical path.
//
// Each part is measured alone, in this process: the compute of a micro-batch with everything it
// needs on the GPU, copies both ways, and the host's update. From these follows the least time of a
// step (bench/offload/critical_path.h). Then real steps are timed, one right after the other, since
// an update may overlap with the step after it.
#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/offload/critical_path.h"
#include "lockstep/train/options/options.h"

namespace lockstep::bench {

struct DeviceOffloadBench {
  // Of a GPU. Where no key of offload.* is set the optimizer is on the host.
  train::TrainOptions options;
  int steps = 5;  // timed, of each run
};

struct DeviceOffloadRow {
  std::string name;
  StepParts parts;
  double step_seconds = 0;  // the median
  double tokens_per_second = 0;
  double device_bytes = 0;  // as planned
  double bar = 0;           // of step_seconds / critical_path(parts)

  double ratio() const { return step_seconds / critical_path(parts); }
};

struct DeviceOffloadReport {
  static constexpr double kBar = 1.1;
  static constexpr double kDelayedBar = 1.15;

  double parameters = 0;
  std::vector<DeviceOffloadRow> rows;  // as set, and with a delayed update where that is possible

  bool holds() const;
};

// Throws what a run throws.
DeviceOffloadReport run_device_offload(const DeviceOffloadBench& bench);

}  // namespace lockstep::bench
