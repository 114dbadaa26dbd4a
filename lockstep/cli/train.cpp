#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/run_arguments.h"
#include "lockstep/train/run.h"

namespace lockstep::cli {
namespace {

// What a run that was interrupted and can go on exits with: EX_TEMPFAIL of sysexits.h.
constexpr int kToBeContinued = 75;

constexpr const char* kFooter =
    R"(A run lives in its folder, run.dir. The same command again goes on from the newest checkpoint
there, to the bit; `lockstep train RUN_FOLDER` does so too. Ctrl-C and SIGTERM finish the step, save
and exit with 75; a second Ctrl-C stops at once.

Examples:
  lockstep train examples/shakespeare-char.toml
  lockstep train examples/gpt2-124m.toml data.text=corpus.txt run.dir=runs/first
  lockstep train data.text=book.txt model.layers=4 model.hidden=128 model.heads=4 train.seq=64
  lockstep train runs/first train.steps=20000

Other trainers' names are understood too: learning_rate, per_device_train_batch_size,
gradient_accumulation_steps, bf16, ... of Hugging Face's Trainer, train_batch_size,
optimizer.params.lr, fp16.enabled, ... of DeepSpeed; a configuration may be JSON.)";

train::ProgressOptions progress_options(const train::RunOptions& options) {
  train::ProgressOptions progress;
  progress.every = options.log_every;
  progress.terminal = ::isatty(STDERR_FILENO) == 1;
  return progress;
}

int run_train(const std::vector<std::string>& arguments) {
  train::RunOptions options;
  Config config;
  train::bind(config, options);
  read_run_arguments(config, options, arguments);
  const train::StopSignal stop;
  std::vector<std::unique_ptr<train::RunObserver>> observers;
  observers.push_back(train::make_progress(progress_options(options)));
  observers.push_back(train::make_metrics_file());
  observers.push_back(train::make_event_file());
  observers.push_back(train::make_report());
  const train::RunOutcome outcome = train::run_training(options, config, observers, stop);
  return outcome == train::RunOutcome::kFinished ? 0 : kToBeContinued;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("train", "Train a model: from a text file to checkpoints");
  auto arguments = std::make_shared<std::vector<std::string>>();
  auto help_config = std::make_shared<bool>(false);
  command->add_option("run", *arguments, "The configuration, or a run's folder; settings on top")
      ->type_name("[CONFIG.toml] [key=value ...]");
  command->add_flag("--help-config", *help_config,
                    "Print every key with its type, default and meaning");
  command->footer(kFooter);
  command->callback([arguments, help_config, &exit_code] {
    if (*help_config) {
      train::RunOptions options;
      Config config;
      train::bind(config, options);
      fmt::print("{}", config.describe());
      return;
    }
    if (arguments->empty()) {
      fail(ErrorCode::kInvalidArgument,
           "train needs a configuration file or key=value settings; see lockstep train --help");
    }
    exit_code = run_train(*arguments);
  });
}

}  // namespace lockstep::cli
