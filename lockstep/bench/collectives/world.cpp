#include "lockstep/base/error.h"
#include "lockstep/bench/collectives/communicator_subject.h"
#include "lockstep/launch/make_world.h"

namespace lockstep::bench {

std::unique_ptr<Communicator> connect_bench_world(std::string_view transport) {
  CommOptions options = comm_options();
  if (transport == name(TransportChoice::kTcp)) options.transport = TransportChoice::kTcp;
  return make_world(options);
}

}  // namespace lockstep::bench
