// lockstep bench data-parallel: what several workers cost and gain, by runs of lockstep train.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/bench/data_parallel/bench_data_parallel.h"
#include "lockstep/cli/bench.h"
#include "lockstep/cli/bench_peers.h"

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

struct DataParallelFlags {
  bench::DataParallelBench bench;
  std::string command;
  PeerFlags peers;
};

void add_data_parallel_options(CLI::App& command, DataParallelFlags& flags) {
  bench::DataParallelBench& bench = flags.bench;
  command.add_option("--case", bench.cases, "one of those below; may be repeated (all)")
      ->type_name("NAME");
  command.add_option("--model", bench.model, "that is timed, by name")->capture_default_str();
  command
      .add_option("--set", bench.settings, "any setting of all runs, also model.*; may be repeated")
      ->type_name("KEY=VALUE");
  command.add_option("--ranks", bench.ranks, "T of scaling")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  command.add_option("--batch", bench.batch, "sequences of a timed step (8 in scaling, else 2)")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--seq", bench.sequence, "tokens of each (512 in scaling, else 256)")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--steps", bench.steps,
                  "of each run (8 that are timed, the first two dropped; 2000 with a text)")
      ->check(CLI::Range(1, 1000000));
  command.add_option("--runs", bench.runs, "of each setting that is timed, by turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--link", bench.link, "the emulated link, like 1Gbit,100us (found)")
      ->type_name("RATE,DELAY");
  command.add_option("--text", bench.text, "a text file, to compare losses on")->type_name("FILE");
  command.add_flag("--all", bench.all, "every codec in compression");
  command.add_option("--lockstep", flags.command, "another build's program to measure (this one)")
      ->type_name("PATH");
  add_peer_options(command, flags.peers, "PyTorch's DistributedDataParallel in scaling", "PyTorch");
}

}  // namespace

void add_bench_data_parallel(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<DataParallelFlags>();
  CLI::App* command =
      bench.add_subcommand("data-parallel", "Measure what data parallel training costs and gains");
  command->footer(kDataParallelExamples);
  add_data_parallel_options(*command, *flags);
  command->callback([flags, &exit_code] {
    set_peers(flags->peers, flags->bench);
    if (!flags->command.empty()) flags->bench.command = std::filesystem::absolute(flags->command);
    for (const auto& [flag, path] :
         {std::pair{"--text", flags->bench.text}, std::pair{"--lockstep", flags->bench.command}}) {
      if (!path.empty() && !std::filesystem::is_regular_file(path)) {
        fail(ErrorCode::kInvalidArgument, "{}: there is no file {}", flag, path.string());
      }
    }
    exit_code = run_bench([&] { return bench::run_data_parallel(flags->bench); });
  });
}

}  // namespace lockstep::cli
