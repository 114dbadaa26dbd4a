// The subcommands of `lockstep bench`, one file each.
#pragma once

#include "lockstep/cli/command.h"
#include "lockstep/train/options/options.h"

namespace lockstep::cli {

void add_bench_collectives(CLI::App& bench, int& exit_code);
void add_bench_ops(CLI::App& bench, int& exit_code);
void add_bench_worker(CLI::App& bench, int& exit_code);  // hidden: a rank of a bench
void add_bench_train(CLI::App& bench, int& exit_code);
void add_bench_train_worker(CLI::App& bench, int& exit_code);  // hidden: one side of it
void add_bench_generate(CLI::App& bench, int& exit_code);
void add_bench_generate_worker(CLI::App& bench, int& exit_code);  // hidden: one side of it
void add_bench_recipe(CLI::App& bench, int& exit_code);
void add_bench_data_parallel(CLI::App& bench, int& exit_code);
void add_bench_zero(CLI::App& bench, int& exit_code);
void add_bench_tokenize(CLI::App& bench, int& exit_code);
void add_bench_offload(CLI::App& bench, int& exit_code);
void add_bench_live(CLI::App& bench, int& exit_code);
void add_bench_device_collectives(CLI::App& bench, int& exit_code);

// For benches that train: throws for settings that a run would reject, and for memory.auto, which
// benches do not support.
void check_bench_options(const train::TrainOptions& options);

}  // namespace lockstep::cli
