#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/launch_flags.h"
#include "lockstep/cli/live_process.h"
#include "lockstep/cli/run_arguments.h"
#include "lockstep/cli/train_rank.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/launch/resize_request.h"
#include "lockstep/launch/variables.h"
#include "lockstep/parallel/strategy/mesh_of_job.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/observe/job_log.h"
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
infinite loss exits with 3. With --ranks a rank that dies or hangs is started again (--max-restarts);
survive.* decides what stays in memory and when a rank hangs. With --ranks MIN:MAX the job continues
with fewer ranks when no restart is left, and grows again: by itself, or by `lockstep resize`. The
steps keep their sequences. --spares N take the place of a rank at once. Where a whole node is lost
the others wait until the same command is started there again (--rejoin-timeout). With --nodes
MIN:MAX the job continues without the node then, and grows when it comes back.

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

// With how many ranks an elastic job continues.
int least_ranks(const LaunchOptions& options) {
  const LaunchOptions::Elastic& elastic = options.elastic;
  return elastic.least * (elastic.least_nodes > 0 ? elastic.least_nodes : options.nodes);
}

// Whether the number of ranks may change.
bool is_adaptable(const LaunchOptions& options) {
  return options.is_elastic() && least_ranks(options) < options.ranks_per_node * options.nodes;
}

// Every rank a process of its own, started by this one.
int train_in_processes(const std::vector<std::string>& arguments, int ranks,
                       const train::RunOptions& run, LaunchFlags flags) {
  const parallel::ParallelOptions& options = run.train.parallel;
  flags.options.elastic.resize_file = resize_path(run.dir);
  flags.no_prefix = true;
  flags.options.error_prefix = kErrorPrefix;
  flags.options.ranks_per_node = ranks / flags.options.nodes;
  if (is_adaptable(flags.options)) {
    flags.options.environment.emplace_back(kMostRanksVariable, fmt::format("{}", ranks));
  }
  flags.options.restarts = {
      .most = kUsualRestarts, .has_links = true, .final_codes = {kUsageError, kNonFiniteError}};
  // Rank 0 leads, and servers hold the parameters. The remaining workers take over the work of any
  // other rank; but where mirrors make all of them replaceable they are replaced.
  const bool drifts = options.strategy == parallel::StrategyKind::kParameterServer &&
                      options.server.consistency != parallel::Consistency::kBsp;
  const bool replaces_all = drifts && run.train.survive.mirror &&
                            flags.max_restarts.value_or(kUsualRestarts) > 0 &&
                            train::keeps_shards(run.train, train::device_of(run.train));
  if (drifts && !replaces_all) {
    flags.options.tolerates_loss_of = [server = options.server, ranks](int rank) {
      for (int i = 0; i < server.servers; ++i) {
        if (parallel::rank_of_server(server, i, ranks) == rank) return false;
      }
      return rank != 0;
    };
  }
  if (const auto mesh = parallel::mesh_of_job(options, ranks)) {
    flags.options.describe_rank = [mesh](int rank) { return plan::describe_rank(*mesh, rank); };
  }
  if (::isatty(STDERR_FILENO) == 1) {
    const char* terminal = ::ttyname(STDERR_FILENO);
    flags.options.live_output = true;
    flags.options.environment.emplace_back(kTerminalVariable,
                                           terminal != nullptr ? terminal : "/dev/tty");
  }
  train::JobLog log(run.dir);
  flags.options.hear_output = [&](std::optional<int> rank, std::string_view line) {
    log.add_output(rank, line);
  };
  flags.options.hear_launcher = [&](std::string_view line) { log.add_launcher(line); };
  flags.options.environment.emplace_back(kLiveVariable, "1");
  flags.options.command = {std::filesystem::read_symlink("/proc/self/exe").string(), "train"};
  auto& command = flags.options.command;
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch_job(resolve(flags));
}

// Restarts are the launcher's, and its ranks are processes.
void check_restarts(const LaunchFlags& flags, const World& world, bool threads) {
  if (!flags.max_restarts || *flags.max_restarts == 0) return;
  if (world.origin != kNothingSet) {
    fail(ErrorCode::kInvalidArgument,
         "--max-restarts {} has no effect: a launcher started this process as rank {} of {} ({}), "
         "and restarts are the launcher's. Leave it out, or start lockstep without a launcher",
         *flags.max_restarts, world.rank, world.size, world.origin);
  }
  if (threads) {
    fail(ErrorCode::kInvalidArgument,
         "--max-restarts {} needs ranks that are processes, and comm.backend = \"threads\" makes "
         "them threads of one. Leave one of the two out",
         *flags.max_restarts);
  }
}

void read_size(LaunchFlags& flags) {
  LaunchOptions& options = flags.options;
  read_nodes(flags);
  const Range ranks = parse_range("--ranks", flags.ranks, "rank");
  options.ranks_per_node = ranks.most;
  const bool is_range = flags.ranks.find(':') != std::string::npos;
  if (is_range || options.elastic.spares > 0 || options.elastic.least_nodes > 0) {
    options.elastic.least = ranks.least;
  }
}

// What a job whose ranks have spares, or may be fewer, needs.
void check_elastic(const LaunchFlags& flags, const parallel::ParallelOptions& parallel,
                   const World& world, bool threads) {
  const LaunchOptions& options = flags.options;
  if (!options.is_elastic()) return;
  const std::string asked = !is_adaptable(options)
                                ? fmt::format("--spares {}", options.elastic.spares)
                            : options.elastic.least_nodes > 0 ? "--nodes " + flags.nodes
                                                              : "--ranks " + flags.ranks;
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::kInvalidArgument, "{} {}", asked, why);
  };
  if (world.origin != kNothingSet) {
    refuse(
        fmt::format("has no effect: a launcher started this process as rank {} of {} ({}). Leave "
                    "it out, or start lockstep without a launcher",
                    world.rank, world.size, world.origin));
  }
  if (threads) {
    refuse(
        "needs ranks that are processes, and comm.backend = \"threads\" makes them threads of "
        "one. Leave one of the two out");
  }
  if (parallel.strategy == parallel::StrategyKind::kParameterServer) {
    refuse(
        "is for data parallelism (DDP and parallel.zero), not for parallel.strategy = "
        "\"parameter_server\"");
  }
  if (parallel::ranks_per_model(parallel) > 1 || parallel.context > 1 || parallel.expert > 1) {
    refuse(
        "is for data parallelism (DDP and parallel.zero), not for meshes: leave out "
        "parallel.tensor, pipeline, context and expert, or give --ranks and --nodes one number");
  }
}

int run_train(const std::vector<std::string>& arguments, const LaunchFlags& given) {
  LaunchFlags flags = given;
  read_size(flags);
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
  if (world.is_spare) return train_rank(settings, world);
  check_restarts(flags, world, threads);
  check_elastic(flags, parallel, world, threads);
  const bool restarts = flags.max_restarts.value_or(0) > 0 || flags.options.is_elastic();
  if (world.origin == kNothingSet && (ranks > 1 || restarts)) {
    if (settings.options.comm.backend == Backend::kMpi) {
      fail(ErrorCode::kInvalidArgument,
           "--ranks {0} starts ranks without MPI; with comm.backend = \"mpi\" write mpirun -n {0} "
           "lockstep train ..., without --ranks",
           ranks);
    }
    // What the ranks would refuse is refused once, before they start.
    // With the fewest ranks each has most.
    const bool adapts = is_adaptable(flags.options);
    for (const int count :
         adapts ? std::vector{ranks, least_ranks(flags.options)} : std::vector{ranks}) {
      const train::RunSettings planned = train::plan_job(
          settings,
          {.workers = parallel::workers_of(parallel, count), .most_workers = adapts ? ranks : 0});
      train::check_memory_before(planned.options.train, train::open_settings(planned.config));
    }
    // The run's folder is on the first node.
    std::optional<LiveProcess> page;
    if (flags.options.node_rank == 0) page.emplace(settings.options);
    return threads ? exit_code_of(train_in_threads(settings, ranks))
                   : train_in_processes(arguments, ranks, settings.options, flags);
  }
  std::optional<LiveProcess> page;
  if (world.rank == 0) page.emplace(settings.options);
  return train_rank(settings, world);
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
      ->add_option("-n,--ranks,--nproc-per-node,--nproc_per_node", flags->ranks,
                   "Workers on this machine, each a process (or a thread: comm.backend=threads); "
                   "MIN:MAX: the job continues while MIN are left")
      ->type_name("N or MIN:MAX")
      ->capture_default_str();
  command
      ->add_option("--spares", flags->options.elastic.spares,
                   "Processes that stand by to take the place of a rank that dies")
      ->check(CLI::Range(0, 4096));
  add_node_flags(*command, *flags);
  add_restart_flag(
      *command, *flags,
      fmt::format("How often failed ranks are started again in an hour of progress [{}]",
                  kUsualRestarts));
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
