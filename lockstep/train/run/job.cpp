#include "lockstep/train/run/job.h"

#include <utility>

#include "lockstep/parallel/communication/machines.h"
#include "lockstep/train/dataset/shared_data.h"
#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/run/opened_data.h"
#include "lockstep/train/run/start.h"

namespace lockstep::train {

JobShape shape_of_job(const RunSettings& settings, Communicator* world, const RunRanks& ranks) {
  const parallel::ParallelOptions& parallel = settings.options.train.parallel;
  if (world == nullptr) {
    return {.workers = parallel::workers_of(parallel, 1),
            .threads = ranks.threads,
            .most_workers = ranks.most};
  }
  return {.workers = parallel::workers_of(parallel, world->size()),
          .nodes = parallel::count_machines(world->machines()),
          .threads = ranks.threads,
          .rank = world->rank(),
          .most_workers = ranks.most,
          .node_place = parallel::node_place(world->machines(), world->rank())};
}

parallel::StrategyJob strategy_job(const RunOptions& options, const RunRanks& ranks) {
  CommOptions comm = options.comm;
  comm.timeout = comm.wait_timeout();
  return {.options = options.train.parallel,
          .optimizer = options.train.optimizer,
          .comm = std::move(comm),
          .host = ranks.host,
          .most_micro_batches = most_backwards(options.train),
          .needs_all_workers = ranks.survival != nullptr &&
                               mirrors_shards(options.train, options.train.parallel.device)};
}

void warm_up(const RunSettings& settings, int workers) {
  const RunSettings planned = plan_job(settings, {.workers = workers});
  const Audience nobody({});
  const OpenedData opened(planned.options, RunGroup(nullptr), false, nullptr, nobody);
  const std::unique_ptr<Ops> ops = make_ops(planned.options.train);
  plan_run(with_data(planned.options.train, opened.dataset), *ops, 0);
}

RunOutcome serve(const RunOptions& options, const RunRanks& ranks, Communicator& world,
                 const StopSignal& stop) {
  RunGroup group(&world);
  try {
    await_shared_dataset(group, ranks.generation == 0 ? &stop : nullptr);
  } catch (const StoppedBeforeTheFirstStep&) {
    return RunOutcome::kInterrupted;
  }
  parallel::serve_strategy(strategy_job(options, ranks), world);
  return RunOutcome::kFinished;
}

}  // namespace lockstep::train
