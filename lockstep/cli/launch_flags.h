// The flags of jobs, shared by `lockstep launch` and `lockstep train`.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/launcher.h"

namespace lockstep::cli {

struct LaunchFlags {
  LaunchOptions options;
  std::string rendezvous;
  std::string grace = "5s";
  std::string join_timeout = "5min";
  std::string rejoin_timeout;  // empty: the usual one
  std::vector<std::string> environment;
  std::string config;
  bool no_prefix = false;
  bool no_bind = false;
  std::optional<int> max_restarts;
  std::string nodes = "1";  // N or MIN:MAX
  std::string ranks = "1";  // of lockstep train: N or MIN:MAX
};

// The restarts of `lockstep train` in an hour of progress, where --max-restarts does not say.
inline constexpr int kUsualRestarts = 3;

// --nodes, --node-rank, --rendezvous, --join-timeout, --rejoin-timeout, --grace. `flags` outlives
// the command.
void add_node_flags(CLI::App& command, LaunchFlags& flags);

// --max-restarts, with its meaning for the command.
void add_restart_flag(CLI::App& command, LaunchFlags& flags, const std::string& meaning);

// "4" and "2:4", of `flag`. The same number twice where there is one. Throws
// Error(kInvalidArgument).
struct Range {
  int least = 1;
  int most = 1;
};
Range parse_range(std::string_view flag, const std::string& text, std::string_view noun);
// --nodes, before resolve(): LaunchOptions::nodes, and least_nodes of a range. / Of a command whose
// jobs have a fixed number of nodes.
void read_nodes(LaunchFlags& flags);
void read_fixed_nodes(LaunchFlags& flags);

// Throws Error(kInvalidArgument) for invalid values.
LaunchOptions resolve(const LaunchFlags& flags);

// Runs the job to its end; the exit code. Must be called while the process has one thread.
int launch_job(const LaunchOptions& options);

}  // namespace lockstep::cli
