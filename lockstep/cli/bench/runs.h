// Common flags of benches that start runs of lockstep train.
#pragma once

#include <string>

#include "lockstep/bench/data_parallel/bench_data_parallel.h"
#include "lockstep/cli/bench/peers.h"

namespace lockstep::cli {

struct RunsFlags {
  bench::DataParallelBench bench;
  std::string command;
  PeerFlags peers;
};

// What the help says of them where the benches differ.
struct RunsHelp {
  std::string ranks;
  std::string batch;
  std::string sequence;
  std::string steps;
  std::string runs;
  std::string peer;
};

// --case, --model, --set, --ranks, --batch, --seq, --steps, --runs, --lockstep, and those of peers.
void add_runs_options(CLI::App& command, RunsFlags& flags, const RunsHelp& help);

// Completes flags.bench. Throws if a named file does not exist.
void set_runs(RunsFlags& flags);

}  // namespace lockstep::cli
