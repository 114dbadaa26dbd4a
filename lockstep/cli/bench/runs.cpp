#include "lockstep/cli/bench/runs.h"

#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::cli {

void add_runs_options(CLI::App& command, RunsFlags& flags, const RunsHelp& help) {
  bench::DataParallelBench& bench = flags.bench;
  command.add_option("--case", bench.cases, "one of those below, or a list of them (all)")
      ->delimiter(',')
      ->type_name("NAME");
  command.add_option("--model", bench.model, "that is timed, by name")->capture_default_str();
  command
      .add_option("--set", bench.settings, "any setting of all runs, also model.*; may be repeated")
      ->type_name("KEY=VALUE");
  command.add_option("--ranks", bench.ranks, help.ranks)
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  command.add_option("--batch", bench.batch, help.batch)->check(CLI::Range(1, 1 << 20));
  command.add_option("--seq", bench.sequence, help.sequence)->check(CLI::Range(1, 1 << 20));
  command.add_option("--steps", bench.steps, help.steps)->check(CLI::Range(1, 1000000));
  command.add_option("--runs", bench.runs, help.runs)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--lockstep", flags.command, "another build's program to measure (this one)")
      ->type_name("PATH");
  add_peer_options(command, flags.peers, help.peer, "PyTorch");
}

void set_runs(RunsFlags& flags) {
  set_peers(flags.peers, flags.bench);
  if (!flags.command.empty()) flags.bench.command = std::filesystem::absolute(flags.command);
  for (const auto& [flag, path] :
       {std::pair{"--text", flags.bench.text}, std::pair{"--lockstep", flags.bench.command}}) {
    if (!path.empty() && !std::filesystem::is_regular_file(path)) {
      fail(ErrorCode::kInvalidArgument, "{}: the file {} does not exist", flag, path.string());
    }
  }
}

}  // namespace lockstep::cli
