#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/launch_flags.h"
#include "lockstep/cli/run_arguments.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/make_world.h"
#include "lockstep/launch/variables.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/options/data_paths.h"
#include "lockstep/train/run/memory.h"
#include "lockstep/train/run/resolve.h"
#include "lockstep/train/run/run.h"

namespace lockstep::cli {
namespace {

constexpr const char* kFooter =
    R"(A run lives in its folder, run.dir. The same command again continues from the newest
checkpoint there, to the bit; so does `lockstep train RUN_FOLDER`, from any folder. Ctrl-C, SIGTERM
and a closed terminal finish the step, save and exit with 75; a second Ctrl-C stops at once. A NaN or
infinite loss exits with 3.

A relative path in a configuration is looked for beside that file, then in the current folder; run.dir
is relative to the current folder.

With --ranks N the sequences of every step (train.global_batch_size) are split over N workers of
this machine. Without train.global_batch_size the batch grows with the workers: each has
train.micro_batch_size * train.gradient_accumulation_steps sequences. On several machines run the
same command on each, with --nodes, --node-rank and --rendezvous; or start it as ranks by lockstep
launch, torchrun, mpirun or srun.

Examples:
  lockstep train examples/shakespeare-char.toml
  lockstep train examples/gpt2-124m.toml data.text=corpus.txt run.dir=runs/first
  lockstep train data.text=book.txt model.layers=4 model.hidden=128 model.heads=4 train.seq_len=64
  lockstep train runs/first train.steps=20000
  lockstep train examples/gpt2-124m.toml data.text=corpus.txt --ranks 4

Other trainers' names are understood too: learning_rate, per_device_train_batch_size,
gradient_accumulation_steps, bf16, ... of Hugging Face's Trainer, train_batch_size,
optimizer.params.lr, fp16.enabled, ... of DeepSpeed, n_layer, batch_size, max_iters, ... of nanoGPT
and llm.c; a configuration may be JSON. A name that would change what you expect and that there is
no setting for is refused; settings without effect in a run are listed when it starts.)";

train::ProgressOptions progress_options(const train::RunOptions& options) {
  train::ProgressOptions progress;
  progress.every = options.log_every;
  progress.path = process_environment()(kTerminalVariable).value_or("");
  progress.terminal = !progress.path.empty() || ::isatty(STDERR_FILENO) == 1;
  return progress;
}

// As the file that LOCKSTEP_CONFIG names, the environment and the arguments give them.
train::RunSettings read_settings(const std::vector<std::string>& arguments) {
  train::RunSettings settings;
  if (const auto path = process_environment()(kConfigVariable)) {
    settings.config.read_file(*path);
    train::find_data(settings.options, std::filesystem::path(*path).parent_path());
  }
  settings.config.read_environment();
  read_run_arguments(settings, arguments);
  return settings;
}

std::vector<std::unique_ptr<train::RunObserver>> observers_of(const train::RunOptions& options) {
  std::vector<std::unique_ptr<train::RunObserver>> observers;
  observers.push_back(train::make_progress(progress_options(options)));
  observers.push_back(train::make_metrics_file());
  observers.push_back(train::make_sample_file());
  observers.push_back(train::make_event_file());
  observers.push_back(train::make_report());
  return observers;
}

train::RunOutcome train_as(const train::RunSettings& settings, const train::RunRanks& ranks,
                           const train::StopSignal& stop) {
  std::vector<std::unique_ptr<train::RunObserver>> observers;
  if (ranks.world == nullptr || ranks.world->rank() == 0) {
    observers = observers_of(settings.options);
  }
  return train::run_training(settings, observers, stop, ranks);
}

// Every rank a thread of this process, with its share of the cores.
train::RunOutcome train_in_threads(const train::RunSettings& settings, int ranks) {
  const train::StopSignal stop(true);
  const int threads = std::max(CpuSet::of_this_thread().count() / ranks, 1);
  auto outcome = train::RunOutcome::kFinished;
  run_threads(
      ranks,
      [&](Communicator& world) {
        const train::RunOutcome mine =
            train_as(settings, {.world = &world, .host = {}, .threads = threads}, stop);
        if (world.rank() == 0) outcome = mine;
      },
      settings.options.comm);
  return outcome;
}

// Every rank a process of its own, started by this one.
int train_in_processes(const std::vector<std::string>& arguments, int ranks,
                       const parallel::ParallelOptions& options, LaunchFlags flags) {
  flags.no_prefix = true;
  flags.options.error_prefix = kErrorPrefix;
  flags.options.ranks_per_node = ranks / flags.options.nodes;
  // Rank 0 leads, and servers hold the parameters. The remaining workers take over the work of any
  // other rank.
  if (options.strategy == parallel::StrategyKind::kParameterServer &&
      options.server.consistency != parallel::Consistency::kBsp) {
    flags.options.tolerates_loss_of = [server = options.server, ranks](int rank) {
      for (int i = 0; i < server.servers; ++i) {
        if (parallel::rank_of_server(server, i, ranks) == rank) return false;
      }
      return rank != 0;
    };
  }
  if (::isatty(STDERR_FILENO) == 1) {
    const char* terminal = ::ttyname(STDERR_FILENO);
    flags.options.live_output = true;
    flags.options.environment.emplace_back(kTerminalVariable,
                                           terminal != nullptr ? terminal : "/dev/tty");
  }
  flags.options.command = {std::filesystem::read_symlink("/proc/self/exe").string(), "train"};
  auto& command = flags.options.command;
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch_job(resolve(flags));
}

int exit_code_of(train::RunOutcome outcome) {
  return outcome == train::RunOutcome::kFinished ? 0 : kToBeContinued;
}

int run_train(const std::vector<std::string>& arguments, const LaunchFlags& flags) {
  const train::RunSettings settings = read_settings(arguments);
  const parallel::ParallelOptions& parallel = settings.options.train.parallel;
  const int workers = flags.options.ranks_per_node * flags.options.nodes;
  const int ranks = workers + (parallel::has_own_servers(parallel) ? parallel.server.servers : 0);
  if (ranks > workers && flags.options.nodes > 1) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.server_placement = \"dedicated\" adds server ranks on one machine only. With "
         "--nodes, start all ranks by lockstep launch, servers last, or set "
         "parallel.server_placement = \"colocated\"");
  }
  const bool threads = settings.options.comm.backend == Backend::kThreads;
  WorldOverrides overrides;
  overrides.ranks_meet = settings.options.comm.backend != Backend::kMpi;
  const World world = find_world(overrides);
  if (world.origin != kNothingSet) {
    if (workers > 1 && ranks != world.size) {
      fail(ErrorCode::kInvalidArgument,
           "--ranks asks for {} ranks, but a launcher started this process as rank {} of {} ({}). "
           "Leave --ranks out, or start lockstep without a launcher",
           ranks, world.rank, world.size, world.origin);
    }
  }
  if (world.origin == kNothingSet && ranks > 1) {
    if (settings.options.comm.backend == Backend::kMpi) {
      fail(ErrorCode::kInvalidArgument,
           "--ranks {0} starts ranks without MPI; with comm.backend = \"mpi\" write mpirun -n {0} "
           "lockstep train ..., without --ranks",
           ranks);
    }
    // What the ranks would refuse is refused once, before they start.
    const train::RunSettings planned =
        train::plan_job(settings, {.workers = parallel::workers_of(parallel, ranks)});
    train::check_memory_before(planned.options.train, train::open_settings(planned.config));
    return threads ? exit_code_of(train_in_threads(settings, ranks))
                   : train_in_processes(arguments, ranks, parallel, flags);
  }
  const train::StopSignal stop(world.size == 1);  // a launcher says it for its ranks
  std::unique_ptr<Communicator> communicator;
  if (world.size > 1 || settings.options.comm.backend == Backend::kMpi) {
    // A rank that waits for the others has nothing to save.
    const train::StartUp start_up(stop, kToBeContinued, world.rank == 0);
    communicator = make_world(world, settings.options.comm);
  }
  const train::RunRanks all{.world = communicator.get(),
                            .host = reachable_host(world, settings.options.comm)};
  return exit_code_of(train_as(settings, all, stop));
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("train", "Train a model: from a text file to checkpoints");
  auto arguments = std::make_shared<std::vector<std::string>>();
  const auto help_config = std::make_shared<std::string>();
  const auto flags = std::make_shared<LaunchFlags>();
  command->add_option("run", *arguments, "The configuration, or a run's folder; settings on top")
      ->type_name("[CONFIG.toml] [key=value ...]");
  command
      ->add_option("-n,--ranks,--nproc-per-node,--nproc_per_node", flags->options.ranks_per_node,
                   "Workers on this machine, each a process (or a thread: comm.backend=threads)")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_node_flags(*command, *flags);
  const CLI::Option* helps =
      command
          ->add_option("--help-config", *help_config,
                       "Print the keys that begin so, or all, with type, default and meaning")
          ->expected(0, 1)
          ->type_name("[PREFIX]");
  command->footer(kFooter);
  command->callback([arguments, help_config, helps, flags, &exit_code] {
    if (helps->count() > 0) {
      fmt::print("{}", train::RunSettings().config.describe(*help_config));
      return;
    }
    if (arguments->empty()) {
      fail(ErrorCode::kInvalidArgument,
           "lockstep train needs a configuration file, a run's folder or key=value settings; see "
           "lockstep train --help");
    }
    exit_code = run_train(*arguments, *flags);
  });
}

}  // namespace lockstep::cli
