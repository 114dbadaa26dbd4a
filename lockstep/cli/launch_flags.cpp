#include "lockstep/cli/launch_flags.h"

#include <fmt/core.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text/units.h"
#include "lockstep/launch/guardian.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/launch/variables.h"

namespace lockstep::cli {
namespace {

std::chrono::milliseconds milliseconds_of(const std::string& text) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(parse_seconds(text)));
}

}  // namespace

void add_node_flags(CLI::App& command, LaunchFlags& flags) {
  LaunchOptions& options = flags.options;
  // The other names are torchrun's.
  command.add_option("--nodes,--nnodes", options.nodes, "Nodes in the job; run a launcher on each")
      ->capture_default_str();
  command
      .add_option("--node-rank,--node_rank", options.node_rank, "The number of this node, from 0")
      ->capture_default_str();
  command.add_option("--rendezvous,--rdzv-endpoint,--rdzv_endpoint", flags.rendezvous,
                     "HOST:PORT of node 0, where the ranks meet (one node: loopback, any port)");
  command.add_option("--join-timeout", flags.join_timeout, "How long to wait for other nodes")
      ->capture_default_str();
  command
      .add_option("--rejoin-timeout", flags.rejoin_timeout,
                  "How long nodes wait for one that was lost to be started again, where there are "
                  "restarts")
      ->capture_default_str();
  command
      .add_option("--grace", flags.grace,
                  "After a failure, how long the other ranks have to end on their own, and again "
                  "after SIGTERM")
      ->capture_default_str();
}

void add_restart_flag(CLI::App& command, LaunchFlags& flags, const std::string& meaning) {
  command.add_option("--max-restarts,--max_restarts", flags.max_restarts, meaning)
      ->check(CLI::Range(0, 1'000'000));
}

LaunchOptions resolve(const LaunchFlags& flags) {
  LaunchOptions options = flags.options;
  if (flags.max_restarts) options.restarts.most = *flags.max_restarts;
  options.prefix_output = !flags.no_prefix;
  options.bind = !flags.no_bind;
  options.grace = milliseconds_of(flags.grace);
  options.join_timeout = milliseconds_of(flags.join_timeout);
  options.rejoin_timeout = milliseconds_of(flags.rejoin_timeout);
  if (!flags.rendezvous.empty()) options.rendezvous = parse_host_port(flags.rendezvous);
  for (const std::string& entry : flags.environment) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) {
      fail(ErrorCode::kInvalidArgument, "--env is '{}'; write it like --env NAME=value", entry);
    }
    options.environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  if (!flags.config.empty()) {
    if (!std::filesystem::is_regular_file(flags.config)) {
      fail(ErrorCode::kInvalidArgument, "--config is '{}', which is not a file", flags.config);
    }
    options.environment.emplace_back(kConfigVariable,
                                     std::filesystem::absolute(flags.config).string());
  }
  return options;
}

int launch_job(const LaunchOptions& options) {
  Guarded guarded = guard();
  if (guarded.exit_code) return *guarded.exit_code;
  try {
    return launch(options, std::move(guarded.lifeline));
  } catch (const CommandError& error) {
    fmt::print(stderr, "lockstep: {}\n", error.message);
    return error.exit_code;
  }
}

}  // namespace lockstep::cli
