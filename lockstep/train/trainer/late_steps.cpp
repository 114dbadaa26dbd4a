// Steps of a pipeline with two versions of the weights: they follow each other without emptying it.
//
//   stage 0:  Fa0 Fa1 Ba0 Fb0 Ba1 | Fb1 Bb0 [update a] Fc0 Bb1 | Fc1 ...
//   stage 1:  Fa0 Ba0 Fa1 Ba1     | Fb0 Bb0 Fb1 [update a] Bb1 | Fc0 ...
//
// A call ends with the last backward of its step. The update of the step before is made as late as
// it can be: before the first forward, or message, of the next step. Until then the latest
// parameters are those that the step reads; afterwards they are those of the next step, and this
// step reads the previous ones.
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

Trainer::Unsettled Trainer::begun(const parallel::StepStart& all,
                                  SteadyClock::time_point begin) const {
  Unsettled step{.metrics = {}, .targets = static_cast<double>(all.targets), .begin = begin};
  step.metrics.step = state_.steps;
  step.metrics.tokens = all.tokens;
  step.metrics.ranks = strategy_.workers() * parallel::ranks_per_worker(options_.parallel);
  return step;
}

void Trainer::accumulate_late(const StepInput& now, const std::optional<StepInput>& next,
                              const std::function<bool()>& is_followed, std::int64_t targets) {
  const auto count = static_cast<std::int64_t>(now.micro_batches.size());
  micro_batches_.begin_step(now.micro_batches.size());
  if (block_trace_) {
    replica_.set_listener(&*block_trace_);
    block_trace_->start();
  }
  stage_run_.step_of_stream(
      strategy_.trace(),
      [&](StageRun::Computation computation) {
        const bool reads_previous = reads_previous_ && !computation.is_of_next;
        replica_.use_version(reads_previous ? nn::Replica::Version::kPrevious
                                            : nn::Replica::Version::kLatest);
        // Forwards of the next step do not make its loss.
        const StepInput& of = computation.is_of_next ? *next : now;
        if (computation.is_of_next) computation.action.micro_batch -= static_cast<int>(count);
        const auto index = static_cast<std::size_t>(computation.action.micro_batch);
        compute_slowly(computation, of.micro_batches[index], of.share,
                       static_cast<float>(1 / static_cast<double>(targets)));
      },
      is_followed);
  replica_.use_version(nn::Replica::Version::kLatest);
  if (block_trace_) {
    block_trace_->finish();
    replica_.set_listener(&strategy_);
  }
}

void Trainer::end_late(const Unsettled& step, bool stops) {
  {
    const parallel::TraceScope scope(
        strategy_.trace(),
        {.lane = parallel::TraceLane::kWaiting, .kind = "wait for", .of = "gradients"});
    strategy_.complete_gradients();
  }
  // Other stages have zeros for losses.
  parallel::StepEnd end{.losses = micro_batches_.losses(), .cost = {}};
  end.cost.compute_seconds = seconds_since(step.begin);
  end.axes = take_axis_cost();
  end.axes.bytes_sent += std::exchange(late_bytes_, 0);
  const parallel::StepSummary summary = strategy_.end_step(end);
  std::vector<double> numbers{summary.loss};
  const std::vector<double> costs = numbers_of(summary.costs);
  numbers.insert(numbers.end(), costs.begin(), costs.end());
  late_.begin(stops, std::move(numbers));
}

bool Trainer::settle(std::vector<StepMetrics>& settled) {
  const parallel::LateUpdate::Agreement agreement = late_.agree();
  late_bytes_ += agreement.bytes_sent;
  Unsettled step = *std::exchange(unsettled_, std::nullopt);
  StepMetrics& metrics = step.metrics;
  metrics.loss = agreement.numbers.back().front() / step.targets;
  for (const std::vector<double>& of_stage : agreement.numbers) {
    for (parallel::StepCost cost : costs_of(std::span(of_stage).subspan(1))) {
      cost.staleness = has_two_versions_ ? 1 : 0;
      metrics.costs.push_back(cost);
    }
  }
  metrics.gradient_norm = agreement.result.gradient_norm;
  metrics.block_norms = agreement.result.block_norms;
  metrics.rate = optim::learning_rate_at(options_.schedule, state_.updates + 1);
  // Nothing changes from here on: a step that follows is computed and dropped.
  metrics.skipped = agreement.result.skipped || is_lost_;
  is_lost_ = is_lost_ || metrics.skipped || !std::isfinite(metrics.loss);
  if (!is_lost_) {
    const parallel::UpdateRequest request{
        .optimizer = options_.optimizer, .updates = state_.updates, .rate = metrics.rate};
    late_.update(request, metrics.gradient_norm);
    ++state_.updates;
    reads_previous_ = true;
    has_two_versions_ = true;
  }
  settled.push_back(std::move(metrics));
  return !agreement.stops && !is_lost_;
}

std::optional<std::vector<StepMetrics>> Trainer::step_late(const StepInput& now,
                                                           const std::optional<StepInput>& next,
                                                           bool stops) {
  if (!started_) start();
  const auto begin = SteadyClock::now();
  strategy_.trace().begin_step(now.share.step);
  const parallel::TraceScope scope(
      strategy_.trace(),
      {.lane = parallel::TraceLane::kStep, .kind = "step", .index = now.share.step});
  const bool is_filled = stage_run_.is_filled();
  parallel::StepStart mine{.stops = is_filled ? stops : this->stops(stops)};
  for (const nn::Batch& batch : now.micro_batches) {
    mine.targets += nn::count_targets(batch);
    mine.tokens += batch.shape.tokens();
  }
  // Where the pipeline is not empty, the step is computed, and no other follows it.
  const parallel::StepStart all = strategy_.begin_step(mine);
  if (all.stops && !is_filled) return std::nullopt;
  if (all.targets == 0) {
    fail(ErrorCode::kInvalidArgument,
         "a step of {} micro-batches has no target to learn from; every target is {}",
         now.micro_batches.size(), ops::kNoTarget);
  }
  state_.steps = now.share.step;
  settled_.reset();
  std::vector<StepMetrics> settled;
  reads_previous_ = !is_filled;
  const auto is_followed = [&] {
    const bool may_follow = !unsettled_ || settle(settled);
    return may_follow && next.has_value();
  };
  Unsettled step = begun(all, begin);
  accumulate_late(now, next, is_followed, all.targets);
  end_late(step, all.stops);
  step.metrics.seconds = seconds_since(begin);
  unsettled_ = std::move(step);
  if (stage_run_.is_filled()) return settled;
  settle(settled);
  settled.back().seconds = seconds_since(begin);
  // A step that was lost had read these.
  if (is_lost_) replica_.use_version(nn::Replica::Version::kPrevious);
  settled_ = {.state = state_, .metrics = settled.back()};
  return settled;
}

}  // namespace lockstep::train
