#include "lockstep/launch/launcher.h"

#include "lockstep/launch/node_setup.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep {

int launch(const LaunchOptions& options, UniqueFd lifeline) {
  find_program(options.command.front());  // before the other nodes are kept waiting
  NodeSetup setup = set_up_node(options);
  Supervisor supervisor(options, setup, std::move(lifeline));
  return supervisor.run();
}

}  // namespace lockstep
