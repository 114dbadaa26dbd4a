#include <algorithm>
#include <cstddef>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/launch_flags.h"

namespace lockstep::cli {
namespace {

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

}  // namespace

void add_launch(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "launch", "Start a program as the ranks of a job: lockstep launch -n 4 -- prog args");
  const auto flags = std::make_shared<LaunchFlags>();
  LaunchOptions& options = flags->options;
  command
      ->add_option("-n,--ranks-per-node,--nproc-per-node,--nproc_per_node", options.ranks_per_node,
                   "Ranks on this machine")
      ->capture_default_str();
  add_node_flags(*command, *flags);
  add_restart_flag(*command, *flags,
                   "How often all ranks are started again after one has failed [0]");
  command->add_option("--env", flags->environment, "NAME=value for the ranks; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--config", flags->config,
                      "A file whose name the ranks get in LOCKSTEP_CONFIG");
  command->add_flag("--no-bind", flags->no_bind,
                    "Let ranks use all CPUs; otherwise each is bound to its share of them");
  command->add_flag("--no-prefix", flags->no_prefix, "Do not write [rank] before each line");
  // Everything from the first word that is no flag of ours belongs to the program.
  auto* words =
      command->add_option("command", options.command, "The program and its arguments")->required();
  command->positionals_at_end();
  command->final_callback([=, &exit_code] {
    const auto count = std::ranges::count(command->parse_order(), words);
    read_fixed_nodes(*flags);
    flags->options.command = last_words_typed(static_cast<std::size_t>(count));
    exit_code = launch_job(resolve(*flags));
  });
}

}  // namespace lockstep::cli
