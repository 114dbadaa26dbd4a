#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/launch/guardian.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/launch/variables.h"

namespace lockstep::cli {
namespace {

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

std::chrono::milliseconds milliseconds_of(const std::string& text) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(parse_seconds(text)));
}

LaunchOptions resolve(const LaunchFlags& flags) {
  LaunchOptions options = flags.options;
  options.prefix_output = !flags.no_prefix;
  options.bind = !flags.no_bind;
  options.grace = milliseconds_of(flags.grace);
  options.join_patience = milliseconds_of(flags.join_timeout);
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

// The end of this process's command line, as it was typed: CLI11 would take an argument like [a,b]
// apart.
std::vector<std::string> last_words_typed(std::size_t count) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.size() < count) fail(ErrorCode::kSystem, "cannot read /proc/self/cmdline");
  words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(count));
  return words;
}

int run(const LaunchOptions& options) {
  Guarded guarded = guard();
  if (guarded.exit_code) return *guarded.exit_code;
  try {
    return launch(options, std::move(guarded.lifeline));
  } catch (const CommandError& error) {
    fmt::print(stderr, "lockstep: {}\n", error.message);
    return error.exit_code;
  }
}

}  // namespace

void add_launch(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "launch", "Start a program as the ranks of a job: lockstep launch -n 4 -- prog args");
  const auto flags = std::make_shared<LaunchFlags>();
  LaunchOptions& options = flags->options;
  command->add_option("-n,--ranks-per-node", options.ranks_per_node, "Ranks on this machine")
      ->capture_default_str();
  command->add_option("--nodes", options.nodes, "Machines in the job; run a launcher on each")
      ->capture_default_str();
  command->add_option("--node-rank", options.node_rank, "Which of them this is, from 0")
      ->capture_default_str();
  command->add_option(
      "--rendezvous", flags->rendezvous,
      "HOST:PORT of node 0, where the ranks meet (one machine: loopback, any port)");
  command->add_option("--join-timeout", flags->join_timeout, "How long to wait for other nodes")
      ->capture_default_str();
  command
      ->add_option("--grace", flags->grace,
                   "After a failure, how long the other ranks have to end by themselves, and "
                   "then after SIGTERM")
      ->capture_default_str();
  command->add_option("--env", flags->environment, "NAME=value for the ranks; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--config", flags->config, "A file that the ranks find in LOCKSTEP_CONFIG");
  command->add_flag("--no-bind", flags->no_bind,
                    "Let ranks use all CPUs; otherwise each is bound to its share of them");
  command->add_flag("--no-prefix", flags->no_prefix, "Do not write [rank] before each line");
  // Everything from the first word that is no flag of ours belongs to the program.
  auto* words =
      command->add_option("command", options.command, "The program and its arguments")->required();
  command->positionals_at_end();
  command->final_callback([=, &exit_code] {
    const auto count = std::ranges::count(command->parse_order(), words);
    flags->options.command = last_words_typed(static_cast<std::size_t>(count));
    exit_code = run(resolve(*flags));
  });
}

}  // namespace lockstep::cli
