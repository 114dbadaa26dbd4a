// The flags of jobs, shared by `lockstep launch` and `lockstep train`.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/launcher.h"

namespace lockstep::cli {

struct LaunchFlags {
  LaunchOptions options;
  std::string rendezvous;
  std::string grace = "5s";
  std::string join_timeout = "5min";
  std::string rejoin_timeout = "10min";
  std::vector<std::string> environment;
  std::string config;
  bool no_prefix = false;
  bool no_bind = false;
  std::optional<int> max_restarts;
  std::string ranks = "1";  // of lockstep train: N or MIN:MAX
};

// The restarts of `lockstep train` in an hour of progress, where --max-restarts does not say.
inline constexpr int kUsualRestarts = 3;

// --nodes, --node-rank, --rendezvous, --join-timeout, --rejoin-timeout, --grace. `flags` outlives
// the command.
void add_node_flags(CLI::App& command, LaunchFlags& flags);

// --max-restarts, with its meaning for the command.
void add_restart_flag(CLI::App& command, LaunchFlags& flags, const std::string& meaning);

// Throws Error(kInvalidArgument) for invalid values.
LaunchOptions resolve(const LaunchFlags& flags);

// Runs the job to its end; the exit code. Must be called while the process has one thread.
int launch_job(const LaunchOptions& options);

}  // namespace lockstep::cli
