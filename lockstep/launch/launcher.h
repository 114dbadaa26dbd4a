// Starts and supervises the ranks of one node, and reports how the job ended.
//
// When a rank fails, it is reported at once, with its last output; the others have a grace period
// to end on their own, then get SIGTERM, and after another grace period SIGKILL. The first failure
// of the job, on any node, is the culprit; its exit code becomes the launcher's. With several
// nodes, all launchers wait for the end of the whole job and report the same.
//
// A rank whose loss the job tolerates is reported as well, but the others continue, and the exit
// code is theirs; unless it ended because of a rank that the job needs, according to its last line
// (launch/blame.h): then that rank is the culprit. Ranks that exit with 75 after a signal to any
// node have saved their work; the launchers then exit with 75, too, unless a rank failed. Ranks
// that the job needs are not killed while they save.
//
// SIGINT, SIGTERM and SIGHUP are passed on to the process groups of the ranks, of all nodes,
// SIGUSR1 and SIGUSR2 to this node's ranks alone; a second SIGINT kills these at once and ends the
// job. Standard input goes to rank 0, unless it is a terminal. What ranks leave running is killed
// at the end.
//
// A job with restarts (LaunchOptions::restarts) does not end with a failed rank. The failure ends a
// *generation*: the other ranks end or, if they can (launch/rank_link.h), keep their processes and
// wait; then the launcher starts those that have ended again, and all meet in the next generation.
// A stop request, an exit with 75 and what LaunchOptions::Restarts excludes end the job as ever.
//
// In an *elastic* job the next generation may have another number of ranks. A spare takes the place
// of a rank that has failed; where there is none, a restart; where none is left, the job continues
// with fewer ranks. It grows when a restart is left again, or when somebody asks for that: a new
// process starts as a spare, and when that is warm all ranks stop after the same step and begin in
// another number. Ranks are numbered anew then, in the same order.
//
// With several nodes a generation ends and begins on all of them: node 0's launcher decides
// (launch/coordinator.h). When a node is lost, it waits for its launcher to be started again; when
// node 0 is, the others wait for it and join it again. An elastic job continues without another
// node that does not come back in time, and with it when it does.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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
  // The prefix of the line with which ranks report why they fail, as their last line except for
  // indented ones; empty: unknown. An error that several ranks share is printed once.
  std::string error_prefix;
  struct Restarts {
    int most = 0;  // in an hour of progress; of all the job's time if ranks report no steps
    // The ranks are lockstep's own: they report steps and errors that would come again, and can
    // wait for the next generation.
    bool has_links = false;
    // Exit codes of errors that would come again.
    std::vector<int> final_codes;
  };
  Restarts restarts;  // equal on all nodes
  // The job may continue with fewer ranks than ranks_per_node on a node, or with fewer nodes, and
  // have spares that stand by. Its ranks have links. Processes of spares find kSpareVariable, and
  // wait for their place.
  struct Elastic {
    // The job continues with that many ranks on that many nodes, however these are distributed. No
    // ranks: it is not elastic. No nodes: all of them.
    int least = 0;
    int least_nodes = 0;
    int spares = 0;  // processes, of each node
    // A file that asks for another number of ranks (launch/resize_request.h).
    std::filesystem::path resize_file;
  };
  Elastic elastic;
  bool is_elastic() const { return elastic.least > 0; }
  // Whether the job continues without a rank that has failed, or with a replacement.
  bool recovers() const { return restarts.most > 0 || is_elastic(); }
  // With restarts: how long the others wait for a node that is lost to be started again.
  std::chrono::milliseconds rejoin_timeout{600'000};
  // Whether the job continues without a failed rank; unset: never.
  std::function<bool(int rank)> tolerates_loss_of;
  // What a rank is to the job besides its number ("data 1, pipeline 0"), for messages; unset or
  // empty: nothing.
  std::function<std::string(int rank)> describe_rank;
  // Receives every whole line that a rank writes (no rank: a spare), and those of the launcher
  // itself; unset: nothing. What follows a carriage return on a terminal is none.
  std::function<void(std::optional<int> rank, std::string_view line)> hear_output;
  std::function<void(std::string_view line)> hear_launcher;
};

// In the supervisor of guardian.h: runs the job to its end and returns the exit code. Throws Error
// if the job cannot start.
int launch(const LaunchOptions& options, UniqueFd lifeline);

}  // namespace lockstep
