// lockstep bench data-parallel: what several workers cost and gain, by runs of lockstep train.
#include <memory>

#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/runs.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDataParallelExamples =
    R"(Every number comes from runs of lockstep train that this command starts. Cases, each with the bars
that it has to reach:

  scaling      1 rank with T threads against T ranks with 1 thread; with --peers also PyTorch's
               DistributedDataParallel over Gloo
  overlap      reducing gradients during backward or after it, on an emulated link that is just fast
               enough to do it in the time of backward
  buckets      sizes of buckets on that link
  servers      schedules and numbers of parameter servers on that link
  stragglers   one slow worker of four: bsp, asp, ssp
  compression  bytes on the wire, and what is lost
  tree         the same bits on 1, 2, 4 and 8 ranks
  bert         BERT's masked tokens over a ring of 4 ranks, and on 1 (with --text)

scaling to servers time a large model on made-up tokens (--model, --batch, --seq); the others train
the small model of lockstep bench recipe, and compare losses where a --text is given.

Examples:
  lockstep bench data-parallel --text tinyshakespeare.txt --peers --json data-parallel.json
  lockstep bench data-parallel --case scaling --ranks 4 --batch 16
  lockstep bench data-parallel --case overlap --case buckets --link 1Gbit,100us
  lockstep bench data-parallel --case overlap --set model.layers=4 --set model.hidden=256
      --set model.heads=4 --batch 8 --seq 128
  lockstep bench data-parallel --case compression --all --text tinyshakespeare.txt

PyTorch is looked for in --python, LOCKSTEP_PYTHON, build/peers (./dev peers) and python3.)";

}  // namespace

void add_bench_data_parallel(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<RunsFlags>();
  CLI::App* command =
      bench.add_subcommand("data-parallel", "Measure the cost and gain of data-parallel training");
  command->footer(kDataParallelExamples);
  add_runs_options(
      *command, *flags,
      {.ranks = "T of scaling",
       .batch = "sequences of a timed step (8 in scaling, else 2)",
       .sequence = "tokens of each (512 in scaling, else 256)",
       .steps = "of each run (8 that are timed, the first two dropped; 2000 with a text)",
       .runs = "of each setting that is timed, by turns",
       .peer = "PyTorch's DistributedDataParallel in scaling"});
  command->add_option("--link", flags->bench.link, "the emulated link, like 1Gbit,100us (found)")
      ->type_name("RATE,DELAY");
  command->add_option("--text", flags->bench.text, "a text file, to compare losses on")
      ->type_name("FILE");
  command->add_flag("--all", flags->bench.all, "every codec in compression");
  command->callback([flags, &exit_code] {
    set_runs(*flags);
    exit_code = run_bench([&] { return bench::run_data_parallel(flags->bench); });
  });
}

}  // namespace lockstep::cli
