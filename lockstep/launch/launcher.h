// Starts the ranks of one node, looks after them, and tells how the job ended.
//
// When a rank fails, it is named at once, with its last words; the others have a grace period to
// notice and end by themselves, then get SIGTERM, and after another grace period SIGKILL. The first
// failure of the job, on whatever node, is the culprit; its exit code becomes the launcher's. With
// several nodes, all launchers wait for the end of the whole job and tell the same.
//
// A rank whose loss the job tolerates is named as well, but the others go on, and the exit code is
// theirs; not where it ended because of a rank that the job needs, by its last word
// (launch/blame.h). Such a rank is not the culprit: the one that it names is. Ranks that exit with
// 75 after a signal to any node have saved their work: so do the launchers then, unless a rank
// failed, and until one does, those whose loss is not tolerated have the time that they need for
// it.
//
// SIGINT, SIGTERM and SIGHUP are passed on to the process groups of the ranks, of all nodes,
// SIGUSR1 and SIGUSR2 to this node's ranks alone; a second SIGINT kills these at once and ends the
// job. Standard input goes to rank 0, unless it is a terminal. What ranks leave running is killed
// at the end.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/host_port.h"

namespace lockstep {

struct LaunchOptions {
  std::vector<std::string> command;  // the program and its arguments
  int ranks_per_node = 1;
  int nodes = 1;
  int node_rank = 0;
  std::optional<HostPort> rendezvous;  // needed with several nodes; node 0 listens there
  std::chrono::milliseconds join_timeout{300'000};  // for the launchers of the other nodes
  bool prefix_output = true;
  // Whether a line of standard error that rank 0 rewrites is rewritten here, too. The rank finds
  // the terminal in kTerminalVariable (launch/variables.h).
  bool live_output = false;
  bool bind = true;  // every rank to its share of the CPUs
  std::chrono::milliseconds grace{5000};
  std::vector<std::pair<std::string, std::string>> environment;  // for the ranks, besides ours
  // How the line begins by which ranks tell why they fail, as their last but for indented ones;
  // empty: it is not known. Where several fail alike it is told once.
  std::string error_prefix;
  // Whether the job goes on without a rank that failed; nothing set: it never does.
  std::function<bool(int rank)> tolerates_loss_of;
};

// In the supervisor of guardian.h: runs the job to its end and returns the exit code. Throws Error
// for what kept the job from starting.
int launch(const LaunchOptions& options, UniqueFd lifeline);

}  // namespace lockstep
