#include "lockstep/train/run/validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::train {

namespace {

// Whether any worker of the group was asked to end.
bool one_stops(RunGroup& group, const StopSignal& stop) {
  const double mine = stop.came() ? 1 : 0;
  return std::ranges::any_of(group.numbers(std::span(&mine, 1)), [](double x) { return x != 0; });
}

}  // namespace

std::uint64_t validated_sequences(const RunOptions& options) {
  const auto batch = static_cast<double>(step_plan(options.train.batch).sequences);
  if (options.validate_batches == kAllBatches) return std::numeric_limits<std::uint64_t>::max();
  double sequences = options.validate_batches * batch;
  if (options.validate_batches == kOpenBatches) {
    constexpr double kForwardShare = 1.0 / 3;  // of a step: backward takes twice as long
    const int between = options.validate_every > 0 ? std::min(options.validate_every, options.steps)
                                                   : options.steps;
    sequences = std::floor(kValidationShare / kForwardShare * between * batch);
  }
  return static_cast<std::uint64_t>(std::max(sequences, 1.0));
}

Validation validation_loss(const Validators& validators, const StopSignal& stop,
                           const TellValidation& tell) {
  nn::Replica& replica = validators.replica;
  RunGroup& group = validators.group;
  const std::uint64_t batches = validators.source.validation_batches();
  const std::uint64_t workers = validators.workers;
  // Each of a context group has other tokens of the same sequences.
  const int context = replica.setup().context.size;
  const auto ranks = static_cast<std::uint64_t>(group.size());  // as many of each worker
  const auto stages = static_cast<std::uint64_t>(replica.model().stages());
  const bool at_once = replica.plan().sharding.parameters || replica.tensor_group().size > 1 ||
                       stages > 1 || context > 1 || replica.expert_axis() != nullptr;
  // Losses and targets of each micro-batch, and last whether this worker stopped.
  std::vector<double> mine((batches + workers - 1) / workers * 2 + 1);
  std::size_t at = 0;
  bool stopped = false;
  for (std::uint64_t first = 0; first < batches; first += workers) {
    stopped = at_once ? one_stops(group, stop) : stop.came();
    if (stopped) break;
    if (group.leads()) tell(first, batches);
    const std::uint64_t i = first + validators.worker;
    if (i >= batches) {
      if (validators.stand_in) validators.stand_in(i % batches);
      continue;
    }
    const nn::Batch batch = validators.source.validation(i);
    const Tensor rows = validators.evaluate(batch);
    replica.ops().synchronize();
    mine[at++] = nn::sum_of(rows);
    mine[at++] = static_cast<double>(nn::count_targets(batch));
  }
  mine.back() = stopped ? 1 : 0;
  const std::vector<double> all = group.numbers(mine);
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    if (all[(rank + 1) * mine.size() - 1] != 0) return {.loss = {}, .cut = true};
  }
  double losses = 0;
  double targets = 0;
  for (std::uint64_t i = 0; i < batches; ++i) {
    // The first rank of that worker on the last stage, or of each context rank of it.
    const std::uint64_t per_stage = ranks / stages;
    const std::uint64_t per_worker = per_stage / workers;
    const auto slices = static_cast<std::uint64_t>(ranks == 1 ? 1 : context);
    for (std::uint64_t slice = 0; slice < slices; ++slice) {
      const std::uint64_t rank =
          ranks - per_stage + i % workers * per_worker + slice * (per_worker / slices);
      const double* of = all.data() + rank * mine.size() + i / workers * 2;
      losses += of[0];
      targets += of[1];
    }
  }
  if (targets == 0) return {};
  return {.loss = losses / targets};
}

Validation validation_loss(nn::Replica& replica, parallel::Strategy& strategy, BatchSource& source,
                           RunGroup& group, const StopSignal& stop, const TellValidation& tell) {
  // Those that validate by themselves, without the others of their run, are one worker.
  const bool alone = group.size() == 1;
  const int context = replica.setup().context.size;
  return validation_loss(
      {.replica = replica,
       .source = source,
       .group = group,
       .workers = static_cast<std::uint64_t>(alone ? 1 : strategy.workers() / context),
       .worker = static_cast<std::uint64_t>(alone ? 0 : strategy.worker() / context),
       .evaluate = [&](const nn::Batch& batch) { return replica.evaluate(batch); },
       .stand_in =
           [&](std::uint64_t batch) {
             if (replica.expert_axis() == nullptr) return strategy.stand_in_for_forward();
             // The others of its expert group need its experts: it computes with a batch of theirs.
             replica.evaluate(source.validation(batch));
             replica.ops().synchronize();
           }},
      stop, tell);
}

}  // namespace lockstep::train
