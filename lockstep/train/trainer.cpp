#include "lockstep/train/trainer.h"

#include <chrono>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/optim/gradient_norm.h"
#include "lockstep/train/run_plan.h"

namespace lockstep::train {
namespace {

nn::Replica make_replica(const TrainOptions& options, Ops& ops) {
  nn::MemoryPlan plan = plan_run(options, ops);
  check_limit(options, plan, ops);
  return {model_of(options), std::move(plan), ops};
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, Ops& ops)
    : options_(options), ops_(ops), replica_(make_replica(options, ops)) {
  replica_.initialise(static_cast<std::uint64_t>(options.seed), threads_of(options));
  set_state({});
}

void Trainer::set_state(const TrainState& state) {
  state_ = state;
  if (options_.precision != plan::Precision::kF16) {
    state_.loss_scale.reset();
  } else if (!state_.loss_scale) {
    state_.loss_scale = {.scale = options_.loss_scale.initial};
  }
}

// Returns the sum of all losses.
double Trainer::accumulate(std::span<const nn::Batch> micro_batches, std::int64_t targets) {
  const double factor = loss_scale() / static_cast<double>(targets);
  double losses = 0;
  std::uint64_t first_sequence = 0;
  replica_.zero_gradients();
  for (const nn::Batch& batch : micro_batches) {
    const Tensor rows =
        replica_.forward_backward(batch, {.seed = static_cast<std::uint64_t>(options_.seed),
                                          .step = static_cast<std::uint64_t>(state_.steps),
                                          .first_sequence = first_sequence,
                                          .loss_factor = static_cast<float>(factor)});
    ops_.synchronize();
    losses += nn::sum_of(rows);
    first_sequence += static_cast<std::uint64_t>(batch.shape.batch);
  }
  return losses;
}

double Trainer::gradient_norm() {
  std::vector<Tensor> ranges;
  for (std::size_t block = 0; block < replica_.flat().blocks(); ++block) {
    ranges.push_back(replica_.states().slice(replica_.flat().range(block)).gradients);
  }
  const double scaled = optim::gradient_norm(ops_, ranges, replica_.sums_of_squares());
  return scaled / loss_scale();
}

void Trainer::update(double rate, double gradient_scale) {
  const bool rounds = replica_.setup().dtype != DType::kF32;
  const optim::UpdateStep step{
      .step = state_.updates, .rate = rate, .gradient_scale = gradient_scale};
  for (std::size_t block = 0; block < replica_.flat().blocks(); ++block) {
    for (const nn::FlatRun& run : replica_.flat().runs(block)) {
      const nn::States states = replica_.states().slice(run.range);
      optim::update(ops_, options_.optimizer, step,
                    {.master = states.master,
                     .gradient = states.gradients,
                     .parameter = rounds ? states.parameters : Tensor(),
                     .moment = states.moment,
                     .variance = states.variance,
                     .velocity = states.velocity,
                     .decays = run.decays});
    }
  }
  ops_.synchronize();
}

StepMetrics Trainer::step(std::span<const nn::Batch> micro_batches) {
  const auto begin = std::chrono::steady_clock::now();
  StepMetrics metrics;
  std::int64_t targets = 0;
  for (const nn::Batch& batch : micro_batches) {
    targets += nn::count_targets(batch);
    metrics.tokens += batch.shape.rows();
  }
  if (targets == 0) {
    fail(ErrorCode::kInvalidArgument,
         "a step of {} micro-batches has no target to learn from; every target is {}",
         micro_batches.size(), ops::kNoTarget);
  }
  metrics.step = ++state_.steps;
  metrics.loss_scale = loss_scale();
  metrics.loss = accumulate(micro_batches, targets) / static_cast<double>(targets);
  metrics.gradient_norm = gradient_norm();
  metrics.rate = optim::rate_at(options_.schedule, state_.updates + 1);
  metrics.skipped = !std::isfinite(metrics.gradient_norm);
  if (metrics.skipped) {
    if (state_.loss_scale) state_.loss_scale = optim::after_overflow(*state_.loss_scale);
  } else {
    ++state_.updates;
    const double clip = optim::clip_factor(metrics.gradient_norm, options_.optimizer.clip);
    update(metrics.rate, clip / metrics.loss_scale);
    if (state_.loss_scale) {
      state_.loss_scale = optim::after_good_step(*state_.loss_scale, options_.loss_scale);
    }
  }
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return metrics;
}

}  // namespace lockstep::train
