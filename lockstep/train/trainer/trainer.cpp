#include "lockstep/train/trainer/trainer.h"

#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/parallel/offload/overlapped_update.h"
#include "lockstep/parallel/single_worker.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train {
namespace {

// Settles options as a run does (train/run/run.cpp), for a trainer without other workers.
TrainOptions settled(TrainOptions options, const Ops& ops) {
  settle_recompute(options, ops, options.memory_limit);
  return options;
}

nn::Replica make_replica(const TrainOptions& options, Ops& ops, parallel::Strategy& strategy,
                         MemoryBudget& device, MemoryBudget& host) {
  optim::check(options.schedule);
  nn::MemoryPlan plan = plan_run(options, ops, strategy.worker());
  check_limit(options, plan, ops, strategy.worker());
  nn::ReplicaMemory memory{
      .symmetric = {}, .device = &device, .host = &host, .file = options.offload.file()};
  const std::size_t on_host = plan.device == Device{} ? 0 : plan.host_symmetric_layout.bytes;
  const std::size_t symmetric = plan.symmetric_bytes() - on_host;
  if (symmetric > 0) memory.symmetric = strategy.symmetric_memory(symmetric);
  if (on_host > 0) memory.host_symmetric = strategy.host_symmetric_memory(on_host);
  return {model_of(options), std::move(plan), ops, memory};
}

std::size_t bytes_of(std::span<const Request> requests) {
  std::size_t bytes = 0;
  for (const Request& request : requests) bytes += padded_bytes(request);
  return bytes;
}

constexpr std::size_t kNumbersOfCost = 6;

}  // namespace

std::vector<double> numbers_of(std::span<const parallel::StepCost> costs) {
  std::vector<double> numbers;
  for (const parallel::StepCost& cost : costs) {
    numbers.insert(numbers.end(), {cost.compute_seconds, cost.communication_seconds,
                                   cost.exposed_seconds, static_cast<double>(cost.bytes_sent),
                                   static_cast<double>(cost.bytes_across), cost.elapsed_seconds});
  }
  return numbers;
}

std::vector<parallel::StepCost> costs_of(std::span<const double> numbers) {
  std::vector<parallel::StepCost> costs;
  for (std::size_t i = 0; i < numbers.size(); i += kNumbersOfCost) {
    costs.push_back({.compute_seconds = numbers[i],
                     .communication_seconds = numbers[i + 1],
                     .exposed_seconds = numbers[i + 2],
                     .bytes_sent = static_cast<std::uint64_t>(numbers[i + 3]),
                     .bytes_across = static_cast<std::uint64_t>(numbers[i + 4]),
                     .elapsed_seconds = numbers[i + 5]});
  }
  return costs;
}

Trainer::Trainer(const TrainOptions& options, Ops& ops, parallel::Strategy& strategy)
    : Trainer(options, ops, strategy, nullptr) {}

Trainer::Trainer(const TrainOptions& options, Ops& ops)
    : Trainer(options, ops,
              std::make_unique<parallel::SingleWorker>(options.parallel.reduction,
                                                       solved(options.batch).accumulation)) {}

Trainer::Trainer(const TrainOptions& options, Ops& ops, std::unique_ptr<parallel::Strategy> own)
    : Trainer(options, ops, *own, std::move(own)) {}

Trainer::Trainer(const TrainOptions& options, Ops& ops, parallel::Strategy& strategy,
                 std::unique_ptr<parallel::Strategy>&& own)
    : options_(settled(options, ops)),
      own_(std::move(own)),
      strategy_(strategy),
      device_memory_(name(Tier::kDevice), options.device_limit),
      host_memory_(name(Tier::kHost)),
      replica_(make_replica(options_, ops, strategy, device_memory_, host_memory_)),
      stage_run_(replica_, step_schedule_of(options_)),
      micro_batches_(replica_, options_.model.dropout > 0,
                     solved(options_.batch).accumulation * stage_run_.slices()),
      outside_(&device_memory_, bytes_of(replica_.plan().outside)),
      host_outside_(&host_memory_, bytes_of(replica_.plan().host_outside)) {
  overlaps_update_ = ops.device() != Device{};
  replica_.initialise(static_cast<std::uint64_t>(options.seed), threads_of(options));
  set_state({});
}

Trainer::~Trainer() {
  if (started_) strategy_.leave();
}

nn::Replica& Trainer::replica() {
  strategy_.finish_update();
  return replica_;
}

bool Trainer::overlaps_update() const {
  return overlaps_update_ && parallel::OverlappedUpdate::serves(replica_.plan());
}

void Trainer::start() {
  started_ = true;
  strategy_.start(replica_);
  replica_.set_listener(&strategy_);
  if (is_late()) {
    late_.start(replica_, late_axes_, strategy_.trace());
    has_two_versions_ = replica_.has_previous();
    if (!has_two_versions_) replica_.keep_version();
  }
  if (strategy_.trace().on()) block_trace_.emplace(strategy_.trace(), replica_, strategy_);
}

void Trainer::set_state(const TrainState& state, const std::optional<StepMetrics>& metrics) {
  state_ = state;
  if (options_.precision != plan::Precision::kF16) {
    state_.loss_scale.reset();
  } else if (!state_.loss_scale) {
    state_.loss_scale = {.scale = options_.loss_scale.initial};
  }
  settled_ = {.state = state_, .metrics = metrics};
}

io::TierTraffic Trainer::filed_traffic() const {
  const parallel::TierMover* const mover = strategy_.mover();
  return replica_.filed_traffic() + (mover != nullptr ? mover->filed_traffic() : io::TierTraffic());
}

void Trainer::begin_micro_batch(std::int64_t index, std::int64_t count) {
  // A GPU computes beside the host, which prepares the next micro-batch meanwhile.
  const bool on_cpu = replica_.ops().device() == Device{};
  const parallel::TraceScope scope(
      strategy_.trace(),
      {.lane = on_cpu ? parallel::TraceLane::kCompute : parallel::TraceLane::kHost,
       .kind = "prepare",
       .of = "micro-batch",
       .index = index});
  strategy_.begin_micro_batch(index, count);
}

void Trainer::compute(const StageRun::Computation& computation, const nn::Batch& batch,
                      const parallel::Share& share, float loss_factor) {
  const std::int64_t number = computation.action.micro_batch;
  // To a strategy every backward that adds to gradients is a micro-batch; slices come from the last
  // to the first.
  const std::int64_t slices = stage_run_.slices();
  const std::int64_t index = number * slices + slices - 1 - computation.action.slice;
  const std::int64_t count = share.micro_batches * slices;
  const nn::MicroBatch micro_batch{.seed = static_cast<std::uint64_t>(options_.seed),
                                   .step = static_cast<std::uint64_t>(share.step),
                                   .first_sequence = static_cast<std::uint64_t>(
                                       (share.first_micro_batch + number) * batch.shape.batch),
                                   .loss_factor = loss_factor};
  if (computation.is_forward()) {
    if (computation.backward_is_next) begin_micro_batch(index, count);
    begun_ = computation.backward_is_next;
    return micro_batches_.forward(computation, batch, micro_batch);
  }
  if (!computation.is_first_backward) {
    strategy_.resume_micro_batch(index, count);
  } else if (!std::exchange(begun_, false)) {
    begin_micro_batch(index, count);
  }
  micro_batches_.backward(computation, batch, micro_batch,
                          !block_trace_ && !strategy_.needs_block_events());
}

void Trainer::compute_slowly(const StageRun::Computation& computation, const nn::Batch& batch,
                             const parallel::Share& share, float loss_factor) {
  const auto begin = SteadyClock::now();
  compute(computation, batch, share, loss_factor);
  if (strategy_.worker() != options_.slow_rank) return;
  const parallel::TraceScope scope(strategy_.trace(),
                                   {.lane = parallel::TraceLane::kCompute, .kind = "delay"});
  std::this_thread::sleep_for((SteadyClock::now() - begin) * (options_.slow_factor - 1));
}

void Trainer::accumulate(std::span<const nn::Batch> micro_batches, const parallel::Share& share,
                         std::int64_t targets) {
  const double factor = loss_scale() / static_cast<double>(targets);
  micro_batches_.begin_step(micro_batches.size());
  if (micro_batches.empty()) strategy_.begin_micro_batch(0, 0);
  // Not before: what else is run, a validation, is no part of a step.
  if (block_trace_) {
    replica_.set_listener(&*block_trace_);
    block_trace_->start();
  }
  const auto count = static_cast<std::int64_t>(micro_batches.size());
  stage_run_.step(count, strategy_.trace(), [&](const StageRun::Computation& computation) {
    const auto index = static_cast<std::size_t>(computation.action.micro_batch);
    compute_slowly(computation, micro_batches[index], share, static_cast<float>(factor));
    if (index + 1 < micro_batches.size()) micro_batches_.upload_ahead(micro_batches[index + 1]);
  });
  if (block_trace_) {
    block_trace_->finish();
    replica_.set_listener(&strategy_);
  }
}

// Whether a rank of this worker was asked to stop.
bool Trainer::stops(bool mine) {
  if (nn::TensorAxis* const tensor = replica_.tensor_axis()) mine = tensor->any(mine);
  if (nn::PipelineAxis* const pipeline = replica_.pipeline_axis()) mine = pipeline->any(mine);
  return mine;
}

// The last stage makes them, and all stages report them.
std::vector<double> Trainer::losses_of_step() {
  std::vector<double> losses = micro_batches_.losses();
  nn::PipelineAxis* const pipeline = replica_.pipeline_axis();
  if (pipeline == nullptr || losses.empty()) return losses;
  const std::vector<double> all = pipeline->gather(losses);
  return {all.end() - static_cast<std::ptrdiff_t>(losses.size()), all.end()};
}

nn::AxisCost Trainer::take_axis_cost() {
  nn::AxisCost cost;
  if (nn::TensorAxis* const tensor = replica_.tensor_axis()) cost = cost + tensor->take_cost();
  if (nn::ContextAxis* const context = replica_.context_axis()) cost = cost + context->take_cost();
  if (nn::ExpertAxis* const experts = replica_.expert_axis()) cost = cost + experts->take_cost();
  if (nn::PipelineAxis* const pipeline = replica_.pipeline_axis()) {
    cost = cost + pipeline->take_cost();
  }
  return cost;
}

std::vector<parallel::StepCost> Trainer::costs_of_stages(std::vector<parallel::StepCost> mine) {
  nn::PipelineAxis* const pipeline = replica_.pipeline_axis();
  if (pipeline == nullptr) return mine;
  return costs_of(pipeline->gather(numbers_of(mine)));
}

StepMetrics Trainer::step(std::span<const nn::Batch> micro_batches, const ReadNext& read_next) {
  if (!started_) start();
  return *step(micro_batches,
               {.step = state_.steps + 1,
                .first_micro_batch = 0,
                .micro_batches = static_cast<std::int64_t>(micro_batches.size())},
               false, read_next);
}

std::optional<StepMetrics> Trainer::step(std::span<const nn::Batch> micro_batches,
                                         const parallel::Share& share, bool stops,
                                         const ReadNext& read_next) {
  if (is_late()) {
    const auto settled = step_late({micro_batches, share}, std::nullopt, stops);
    return settled ? std::optional(settled->back()) : std::nullopt;
  }
  const auto begin = SteadyClock::now();
  strategy_.trace().begin_step(share.step);
  const parallel::TraceScope scope(
      strategy_.trace(), {.lane = parallel::TraceLane::kStep, .kind = "step", .index = share.step});
  parallel::StepStart mine{.loss_scale = loss_scale(), .stops = stops};
  for (const nn::Batch& batch : micro_batches) {
    mine.targets += nn::count_targets(batch);
    mine.tokens += batch.shape.tokens();
  }
  mine.stops = this->stops(mine.stops);
  const parallel::StepStart all = strategy_.begin_step(mine);
  if (all.stops) return std::nullopt;
  if (all.targets == 0) {
    fail(ErrorCode::kInvalidArgument,
         "a step of {} micro-batches has no target to learn from; every target is {}",
         micro_batches.size(), ops::kNoTarget);
  }
  StepMetrics metrics;
  metrics.step = state_.steps = share.step;
  metrics.tokens = all.tokens;
  metrics.ranks = strategy_.workers() * parallel::ranks_per_worker(options_.parallel);
  metrics.loss_scale = loss_scale();
  // Workers that do not wait for each other know how many updates they made, not how many all did.
  metrics.rate = optim::learning_rate_at(options_.schedule,
                                         strategy_.in_lockstep() ? state_.updates + 1 : share.step);
  const io::TierTraffic filed = filed_traffic();
  const auto computes_since = SteadyClock::now();
  const parallel::UpdateRequest request{.optimizer = options_.optimizer,
                                        .updates = state_.updates,
                                        .rate = metrics.rate,
                                        .loss_scale = metrics.loss_scale,
                                        .may_overlap = overlaps_update_};
  if (!before_update_) strategy_.expect_update(request);
  std::optional<parallel::DeviceClock> clock;
  if (timed_ != nullptr) {
    clock.emplace(replica_.ops());
    timed_->start();
  }
  accumulate(micro_batches, share, all.targets);
  if (read_next && replica_.ops().device() != Device{}) {
    const std::span<const nn::Batch> next = read_next();
    if (!next.empty()) micro_batches_.upload_ahead(next.front());
  }
  const std::optional<double> committed =
      survives_ ? strategy_.commit_step(losses_of_step()) : std::nullopt;
  if (before_update_) before_update_();
  settled_.reset();
  const parallel::UpdateResult result = strategy_.update(request);
  parallel::StepEnd end{.losses = losses_of_step(), .cost = {}};
  end.cost.compute_seconds = seconds_since(computes_since);
  end.axes = take_axis_cost();
  if (clock) parallel::trace_operations(strategy_.trace(), *clock, timed_->stop());
  metrics.filed = filed_traffic() - filed;
  metrics.gradient_norm = result.gradient_norm;
  metrics.block_norms = result.block_norms;
  metrics.has_norm = result.has_norm;
  metrics.skipped = result.skipped;
  if (metrics.skipped) {
    if (state_.loss_scale) state_.loss_scale = optim::after_overflow(*state_.loss_scale);
  } else {
    state_.updates = strategy_.in_lockstep() ? state_.updates + 1 : share.step;
    if (state_.loss_scale) {
      state_.loss_scale = optim::after_good_step(*state_.loss_scale, options_.loss_scale);
    }
  }
  if (committed) {
    metrics.loss = *committed / static_cast<double>(all.targets);
    metrics.seconds = seconds_since(begin);
    settled_ = {.state = state_, .metrics = metrics};
  }
  parallel::StepSummary summary = strategy_.end_step(end);
  metrics.loss = summary.loss / static_cast<double>(all.targets);
  metrics.costs = costs_of_stages(std::move(summary.costs));
  metrics.seconds = seconds_since(begin);
  settled_ = {.state = state_, .metrics = metrics};
  return metrics;
}

}  // namespace lockstep::train
