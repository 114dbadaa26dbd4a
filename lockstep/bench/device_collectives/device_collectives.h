// How fast ranks exchange data in the memory of GPUs, from stream to stream.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/comm/call.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/device.h"

namespace lockstep::bench {

struct DeviceCollectives {
  std::vector<Collective> ops = {Collective::kAllReduce};
  std::vector<std::size_t> sizes;  // bytes, as in bench collectives
  Device device;
  int turns = 15;
};

struct DeviceTiming {
  Collective op = Collective::kAllReduce;
  std::size_t bytes = 0;
  std::string algorithm;
  double seconds = 0;        // of a call: the median of turns of the slowest rank
  double touched_bytes = 0;  // read and written in a call by all ranks together
};

// Called by all ranks; every call is queued on a stream, many in a row, and the result is checked.
// Also how fast this GPU copies, in bytes read and written per second.
struct DeviceReport {
  std::vector<DeviceTiming> timings;
  double copy_rate = 0;
};
DeviceReport time_device_collectives(const DeviceCollectives& bench, Communicator& world);

}  // namespace lockstep::bench
