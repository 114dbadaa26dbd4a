// The implementations that a bench of collectives compares, and the jobs they run in.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/bench/collectives/job.h"
#include "lockstep/bench/collectives/task.h"

namespace lockstep::bench {

// How one job shows up in the results. A job may serve several implementations.
struct Implementation {
  std::string name;       // "lockstep-symmetric", "gloo-ring", "openmpi"
  std::string job;        // JobSpec::name
  std::string flavour;    // Task::flavour
  std::string algorithm;  // Task::algorithm
  bool is_peer = false;
};

// What is needed to start jobs.
struct Site {
  std::filesystem::path command;    // the `lockstep` program
  std::filesystem::path peers;      // the folder of the peers' workers
  std::filesystem::path directory;  // for files of this run
  std::string socket;               // where workers report
};

inline constexpr const char* kSymmetric = "lockstep-symmetric";
inline constexpr const char* kPrivate = "lockstep-private";
inline constexpr const char* kTcp = "lockstep-tcp";

std::vector<JobSpec> lockstep_jobs(const Site& site, int ranks);
// Those peers that have been built and whose launcher is installed; `missing` gets a line for each
// that is not there.
std::vector<JobSpec> peer_jobs(const Site& site, int ranks, std::vector<std::string>& missing);

// In the order in which they are shown.
std::vector<Implementation> lockstep_implementations(const std::vector<std::string>& algorithms);
std::vector<Implementation> peer_implementations(Collective op);

}  // namespace lockstep::bench
