#include "lockstep/train/run/resolve.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/plan/mesh/mesh.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/model_io/model_of_start.h"
#include "lockstep/train/run/memory.h"
#include "lockstep/train/run/start.h"

namespace lockstep::train {
namespace {

TrainOptions of_this_rank(const RunOptions& options) {
  TrainOptions train = options.train;
  train.threads = threads_of(train);
  if (train.offload.folder.empty()) {
    train.offload.folder = options.dir;
    // On another node than the leader's the folder may not exist yet; the code that needs it
    // reports the error.
    std::error_code none;
    if (train.offload.tiers.has_files()) std::filesystem::create_directories(options.dir, none);
  }
  return train;
}

}  // namespace

RunSettings plan_job(const RunSettings& given, const JobShape& job) {
  RunSettings planned = given;
  RunOptions& options = planned.options;
  BatchChoice& batch = options.train.batch;
  batch.context = options.train.parallel.context;
  batch.most_workers = job.most_workers;
  if (job.most_workers > 0) {
    batch.workers = job.most_workers;
    batch = solved(batch);
    batch.accumulation = 0;
  }
  batch.workers = job.workers;
  options.train.parallel.machines = job.nodes;
  options.train.node_place = job.node_place;
  parallel::ParallelOptions& parallel = options.train.parallel;
  if (parallel::ranks_per_model(parallel) > 1) {
    const int per_data = parallel.context * parallel.expert;
    const plan::Coordinates at = plan::Mesh({.data = job.workers / per_data,
                                             .pipeline = parallel.pipeline,
                                             .tensor = parallel.tensor,
                                             .context = parallel.context,
                                             .expert = parallel.expert})
                                     .coordinates_of(job.rank);
    parallel.tensor_rank = at.tensor;
    parallel.context_rank = at.context;
    parallel.expert_rank = at.expert;
    parallel.stage = at.pipeline;
  }
  if (options.train.threads == 0) options.train.threads = job.threads;
  options = completed(std::move(options));
  options.train.model = model_of_start(options);
  return planned;
}

ResolvedRun resolve(const RunSettings& planned, const Dataset& data, const Ops& ops,
                    RunGroup workers) {
  RunSettings resolved = planned;
  RunOptions& options = resolved.options;
  options.train = with_data(std::move(options.train), data);
  options.train.parallel.device = ops.device();
  if (options.train.share_device) {
    options.train.parallel.device_ranks = std::max(options.train.node_place.ranks, 1);
  }
  if (options.epochs > 0) {
    const nn::BatchShape shape = setup_of(options.train).shape;
    options = with_steps(options, make_source(options.train, data, shape)->sequences());
  }
  MemoryDecision decision =
      decide_by_memory(options.train, open_settings(resolved.config), ops, workers);
  options.train = std::move(decision.options);
  return {resolved, of_this_rank(options), std::move(decision.text)};
}

}  // namespace lockstep::train
