#include "lockstep/cli/launch_flags.h"

#include <fmt/core.h>

#include <charconv>
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
  command
      .add_option("--nodes,--nnodes", flags.nodes,
                  "Nodes in the job; run a launcher on each. MIN:MAX (lockstep train): the job "
                  "continues while MIN are left")
      ->type_name("N or MIN:MAX")
      ->capture_default_str();
  command
      .add_option("--node-rank,--node_rank", options.node_rank, "The number of this node, from 0")
      ->capture_default_str();
  command.add_option("--rendezvous,--rdzv-endpoint,--rdzv_endpoint", flags.rendezvous,
                     "HOST:PORT of node 0, where the ranks meet (one node: loopback, any port)");
  command.add_option("--join-timeout", flags.join_timeout, "How long to wait for other nodes")
      ->capture_default_str();
  command.add_option(
      "--rejoin-timeout", flags.rejoin_timeout,
      "How long nodes wait for one that was lost to be started again, where there are "
      "restarts; with --nodes MIN:MAX they continue without it then [10min; 30s with "
      "--nodes MIN:MAX]");
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

Range parse_range(std::string_view flag, const std::string& text, std::string_view noun) {
  constexpr int kMost = 4096;
  const auto number = [&](std::string_view part) {
    int value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size()) {
      fail(ErrorCode::kInvalidArgument,
           "{0} is '{1}'; write a number, or the fewest and the most {2}s like {0} 2:4", flag, text,
           noun);
    }
    if (value < 1 || value > kMost) {
      fail(ErrorCode::kInvalidArgument, "{} is '{}'; a job has 1 to {} {}s{}", flag, text, kMost,
           noun, noun == "rank" ? " on a node" : "");
    }
    return value;
  };
  const std::size_t colon = text.find(':');
  const std::string_view all = text;
  if (colon == std::string::npos) return {number(all), number(all)};
  const Range range{number(all.substr(0, colon)), number(all.substr(colon + 1))};
  if (range.least > range.most) {
    fail(ErrorCode::kInvalidArgument,
         "{0} {1} begins with the larger number of {2}s; write the fewest first: {0} {3}:{4}", flag,
         text, noun, range.most, range.least);
  }
  return range;
}

void read_nodes(LaunchFlags& flags) {
  const Range nodes = parse_range("--nodes", flags.nodes, "node");
  flags.options.nodes = nodes.most;
  flags.options.elastic.least_nodes = nodes.least < nodes.most ? nodes.least : 0;
}

void read_fixed_nodes(LaunchFlags& flags) {
  read_nodes(flags);
  if (flags.options.elastic.least_nodes == 0) return;
  fail(ErrorCode::kInvalidArgument,
       "--nodes {} is for lockstep train; here the number of nodes is fixed: --nodes {}",
       flags.nodes, flags.options.nodes);
}

LaunchOptions resolve(const LaunchFlags& flags) {
  LaunchOptions options = flags.options;
  if (flags.max_restarts) options.restarts.most = *flags.max_restarts;
  options.prefix_output = !flags.no_prefix;
  options.bind = !flags.no_bind;
  options.grace = milliseconds_of(flags.grace);
  options.join_timeout = milliseconds_of(flags.join_timeout);
  const char* usual = options.elastic.least_nodes > 0 ? "30s" : "10min";
  options.rejoin_timeout =
      milliseconds_of(flags.rejoin_timeout.empty() ? usual : flags.rejoin_timeout);
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
