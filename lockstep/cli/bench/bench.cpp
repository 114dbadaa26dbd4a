#include "lockstep/cli/bench/bench.h"

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"

namespace lockstep::cli {

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed, beside the peers of the field");
  bench->require_subcommand(1);
  add_bench_collectives(*bench, exit_code);
  add_bench_ops(*bench, exit_code);
  add_bench_worker(*bench, exit_code);
  add_bench_train(*bench, exit_code);
  add_bench_train_worker(*bench, exit_code);
  add_bench_generate(*bench, exit_code);
  add_bench_generate_worker(*bench, exit_code);
  add_bench_recipe(*bench, exit_code);
  add_bench_data_parallel(*bench, exit_code);
  add_bench_zero(*bench, exit_code);
  add_bench_tokenize(*bench, exit_code);
  add_bench_offload(*bench, exit_code);
  add_bench_live(*bench, exit_code);
  add_bench_device_collectives(*bench, exit_code);
}

void check_bench_options(const train::TrainOptions& options) {
  train::check(options);
  if (!options.memory_auto) return;
  fail(ErrorCode::kInvalidArgument,
       "memory.auto chooses for a run; set what is to be timed (lockstep plan says what it would "
       "choose)");
}

}  // namespace lockstep::cli
