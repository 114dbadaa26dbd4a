#include "lockstep/parallel/communication/communication_group.h"

#include "lockstep/comm/device_communicator.h"

namespace lockstep::parallel {

std::unique_ptr<Communicator> communication_group(Communicator& world,
                                                  const ParallelOptions& options) {
  std::unique_ptr<Communicator> group = world.split(0, world.rank());
  if (options.device == Device{}) return group;
  return make_device_communicator(std::move(group),
                                  {.device = options.device, .timeout = options.comm.timeout});
}

std::size_t communication_group_bytes(Device device, std::size_t symmetric) {
  if (device == Device{}) return 0;
  return device_communicator_bytes(true) + symmetric_device_bytes(symmetric) - symmetric;
}

}  // namespace lockstep::parallel
