// The flags of jobs, shared by `lockstep launch` and `lockstep train`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lockstep/launch/launcher.h"

namespace lockstep::cli {

struct LaunchFlags {
  LaunchOptions options;
  std::string rendezvous;
  std::string grace = "5s";
  std::string join_timeout = "5min";
  std::vector<std::string> environment;
  std::string config;
  bool no_prefix = false;
  bool no_bind = false;
};

// --nodes, --node-rank, --rendezvous, --join-timeout, --grace. `flags` outlives the command.
void add_node_flags(CLI::App& command, LaunchFlags& flags);

// Throws Error(kInvalidArgument) for invalid values.
LaunchOptions resolve(const LaunchFlags& flags);

// Runs the job to its end; the exit code. Must be called while the process has one thread.
int launch_job(const LaunchOptions& options);

}  // namespace lockstep::cli
