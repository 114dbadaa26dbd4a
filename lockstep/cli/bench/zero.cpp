// lockstep bench zero: what sharing out states costs and gains, by runs of lockstep train.
#include <memory>

#include "lockstep/bench/zero/bench_zero.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/runs.h"

namespace lockstep::cli {
namespace {

constexpr const char* kZeroExamples =
    R"(Every number comes from runs of lockstep train that this command starts. Cases, each with the bars
that it has to reach:

  stages   plain data parallelism, and ZeRO's stages 1 to 3
  fsdp     stage 3 beside PyTorch's FSDP2 over Gloo (with --peers): memory of a rank, of shared
           pages its share (in one more run of each), and tokens/s
  mirror   every shard mirrored in the memory of another rank (survive.mirror), or not
  saves    checkpoints that are written beside steps or between them: how long the run waits.
           They go where temporary files do: TMPDIR=/a/real/disk says where

Examples:
  lockstep bench zero --peers --json zero.json
  lockstep bench zero --case stages --model gpt2-355m --batch 4
  lockstep bench zero --case saves --runs 3

PyTorch is looked for in --python, LOCKSTEP_PYTHON, build/peers (./dev peers) and python3.)";

}  // namespace

void add_bench_zero(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<RunsFlags>();
  CLI::App* command = bench.add_subcommand("zero", "Measure the cost and gain of sharded states");
  command->footer(kZeroExamples);
  add_runs_options(*command, *flags,
                   {.ranks = "workers that shard their states",
                    .batch = "sequences of a step (8)",
                    .sequence = "tokens of each (512)",
                    .steps = "of each run (8, of saves 13; the first two of each are dropped)",
                    .runs = "of each setting, by turns",
                    .peer = "PyTorch's FSDP2 in fsdp"});
  command->callback([flags, &exit_code] {
    set_runs(*flags);
    exit_code = run_bench([&] { return bench::run_zero(flags->bench); });
  });
}

}  // namespace lockstep::cli
