// The trainer of one worker: a replica and its training step. Its strategy distributes steps over
// workers (parallel/strategy/strategy.h).
//
//   Trainer trainer(options, ops);
//   for (...) print(trainer.step(micro_batches));
//
// A step accumulates the gradients of its micro-batches, clips them, updates the f32 parameters,
// and rounds the copy that the model uses. If a gradient is infinite or NaN the step changes only
// the loss scale and is reported as skipped. A step of one micro-batch of 8 sequences and one of 4
// micro-batches of 2 are the same training: the loss is the mean over all targets of the step.
//
// Memory is allocated once, at construction, as planned; the constructor throws before that if the
// plan exceeds options.memory_limit or options.device_limit. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/system/clock.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/ops/timed_ops.h"
#include "lockstep/optim/loss_scale.h"
#include "lockstep/parallel/late_update.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/parallel/trace/block_trace.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/trainer/micro_batches.h"

namespace lockstep::train {

// The state that a checkpoint stores besides the flat buffers of nn::States.
struct TrainState {
  std::int64_t steps = 0;                      // begun, skipped ones included
  std::int64_t updates = 0;                    // of the parameters
  std::optional<optim::LossScale> loss_scale;  // in f16
};

struct StepMetrics {
  std::int64_t step = 0;            // 1 is the first
  double loss = 0;                  // the mean over all targets
  double gradient_norm = 0;         // before clipping, without the loss scale
  std::vector<double> block_norms;  // of the gradients of each block; empty: not known
  bool has_norm = true;             // false: it was not computed
  double rate = 0;                  // the learning rate
  double loss_scale = 1;            // of this step
  bool skipped = false;
  std::int64_t tokens = 0;  // of all workers
  int ranks = 0;            // of the run; 0: not known
  double seconds = 0;
  std::vector<parallel::StepCost> costs;  // of each worker; of those of stage 0, of stage 1, ...
  io::TierTraffic filed;                  // of this one, with what lies in files

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

// Costs as numbers, for the other ranks.
std::vector<double> numbers_of(std::span<const parallel::StepCost> costs);
std::vector<parallel::StepCost> costs_of(std::span<const double> numbers);

class Trainer {
 public:
  // Plans, checks the limits, allocates, and sets the initial parameters. An open train.recompute =
  // "auto" is chosen by memory.limit. `ops` and `strategy` must outlive it.
  Trainer(const TrainOptions& options, Ops& ops, parallel::Strategy& strategy);
  // The only worker of its run.
  Trainer(const TrainOptions& options, Ops& ops);
  // The strategy leaves.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Sets the communication of the tensor group, of the pipeline, of the context group and of the
  // expert group, which must outlive it; nullptr: there is none.
  void set_axes(nn::TensorAxis* tensor, nn::PipelineAxis* pipeline,
                nn::ContextAxis* context = nullptr, nn::ExpertAxis* expert = nullptr) {
    replica_.set_tensor_axis(tensor);
    replica_.set_context_axis(context);
    replica_.set_expert_axis(expert);
    replica_.set_pipeline_axis(pipeline);
  }

  // With two versions of the weights: the same ranks by other communicators, for what they agree on
  // beside computations.
  void set_late_axes(const parallel::LateUpdate::Axes& axes) { late_axes_ = axes; }

  // Called when the replica has its initial values, before the first step: copies them to all
  // workers.
  void start();

  // This worker's micro-batches of the step that `share` is part of; of the planned shape. Nothing
  // where a worker `stops`: then no worker does the step. On a GPU a token outside the vocabulary
  // is found at the end of the step, which has changed the parameters by then. Throws
  // Error(kInvalidArgument) where no micro-batch of any worker has a target.
  //
  // `read_next` returns the micro-batches of the next step, if they are known. It is called while a
  // GPU computes, on a CPU not at all, and may overwrite `micro_batches`.
  using ReadNext = std::function<std::span<const nn::Batch>()>;
  std::optional<StepMetrics> step(std::span<const nn::Batch> micro_batches,
                                  const parallel::Share& share, bool stops = false,
                                  const ReadNext& read_next = {});
  // The micro-batches of the next step, any number of them, by the only worker; started by itself.
  StepMetrics step(std::span<const nn::Batch> micro_batches, const ReadNext& read_next = {});

  // A step of a pipeline with two versions of the weights (parallel.pipeline_schedule =
  // "pipedream_2bw"). Its update is made during the next step, W(t+1) = W(t) - rate * gradient at
  // W(t-1), and its metrics come with that. `next` is the step that follows it, if that is known:
  // its first forwards are computed before this step's last backward. Its micro-batches hold until
  // the end of the next call, which is for it; they may be read again meanwhile, to the same.
  //
  // Without `next`, or where a worker `stops` or a gradient is NaN, the pipeline is empty at the
  // end of the call, and all updates are made. No bit depends on it.
  struct StepInput {
    std::span<const nn::Batch> micro_batches;
    parallel::Share share;
  };
  // The steps that are complete now, at most two, in order. Nothing where a worker stops and the
  // pipeline was empty: then no worker does the step.
  std::optional<std::vector<StepMetrics>> step_late(const StepInput& now,
                                                    const std::optional<StepInput>& next,
                                                    bool stops = false);
  bool is_late() const { return stage_run_.can_be_followed(); }

  // Adds the operations of every step to the strategy's trace. `timed` is the Ops that the trainer
  // was made with.
  void trace_operations(TimedOps& timed) { timed_ = &timed; }

  // With a complete update. A reference that is kept over a step is not: call replica() again.
  nn::Replica& replica();
  // What this worker takes of a tier: never more than options.device_limit on the device.
  const MemoryBudget& device_memory() const { return device_memory_; }
  const MemoryBudget& host_memory() const { return host_memory_; }
  parallel::Strategy& strategy() { return strategy_; }
  const TrainOptions& options() const { return options_; }
  const TrainState& state() const { return state_; }
  // For a worker that shall outlive the loss of others (train/run/survival.h): steps are committed
  // (Strategy::commit_step).
  void set_survives() { survives_ = true; }
  // Whether an update on the host may go on during the next step's first forward, which waits for
  // it block by block: the same bits. By default beside a GPU; on the CPU both need the same cores.
  void set_overlaps_update(bool overlaps) { overlaps_update_ = overlaps; }
  // Whether the end of a step may leave an update under way: to time steps, take one right after
  // the other.
  bool overlaps_update() const;
  // Is called in every step before its update, and before that no state changes.
  void set_before_update(std::function<void()> call) { before_update_ = std::move(call); }
  // What the replica's states are: the state after the last update, with the metrics of its step
  // where they are known. A step that fails leaves them so. Nothing where an update was
  // begun and its outcome is not known.
  struct Settled {
    TrainState state;
    std::optional<StepMetrics> metrics;
  };
  const std::optional<Settled>& last_settled() const { return settled_; }
  // Accepts the state of a run in any precision: if only one of the two scales its loss, the
  // initial scale is used. The metrics are of its last step, where they are known.
  void set_state(const TrainState& state, const std::optional<StepMetrics>& metrics = {});

 private:
  Trainer(const TrainOptions& options, Ops& ops, std::unique_ptr<parallel::Strategy> own);
  Trainer(const TrainOptions& options, Ops& ops, parallel::Strategy& strategy,
          std::unique_ptr<parallel::Strategy>&& own);
  void begin_micro_batch(std::int64_t index, std::int64_t count);
  void compute(const StageRun::Computation& computation, const nn::Batch& batch,
               const parallel::Share& share, float loss_factor);
  // A step whose update is not made yet.
  struct Unsettled {
    StepMetrics metrics;
    double targets = 0;
    SteadyClock::time_point begin;
  };
  // Of a step, with how many updates its gradients are late.
  Unsettled begun(const parallel::StepStart& all, SteadyClock::time_point begin) const;
  void accumulate_late(const StepInput& now, const std::optional<StepInput>& next,
                       const std::function<bool()>& is_followed, std::int64_t targets);
  // All ranks of this worker have the gradients of the step: begins to agree on their norm.
  void end_late(const Unsettled& step, bool stops);
  // Makes the update of the step before; its metrics. Whether another step may follow.
  bool settle(std::vector<StepMetrics>& settled);
  // compute(), and the delay of a worker that is made slow.
  void compute_slowly(const StageRun::Computation& computation, const nn::Batch& batch,
                      const parallel::Share& share, float loss_factor);
  bool stops(bool mine);
  std::vector<double> losses_of_step();
  nn::AxisCost take_axis_cost();
  std::vector<parallel::StepCost> costs_of_stages(std::vector<parallel::StepCost> mine);
  // Their losses are then being copied.
  void accumulate(std::span<const nn::Batch> micro_batches, const parallel::Share& share,
                  std::int64_t targets);
  // Bytes written to and read from files so far.
  io::TierTraffic filed_traffic() const;
  // 1 where the loss is not scaled.
  double loss_scale() const { return state_.loss_scale ? state_.loss_scale->scale : 1; }

  TrainOptions options_;
  std::unique_ptr<parallel::Strategy> own_;  // where none was given
  parallel::Strategy& strategy_;
  bool started_ = false;
  MemoryBudget device_memory_;
  MemoryBudget host_memory_;
  nn::Replica replica_;
  StageRun stage_run_;
  MicroBatches micro_batches_;
  bool begun_ = false;  // the strategy's micro-batch, by the forward before
  // Of what the strategy takes.
  MemoryClaim outside_;
  MemoryClaim host_outside_;
  std::optional<parallel::BlockTrace> block_trace_;  // where the strategy's trace is on
  TimedOps* timed_ = nullptr;                        // whose operations are traced
  TrainState state_;
  parallel::LateUpdate::Axes late_axes_;
  parallel::LateUpdate late_;
  std::optional<Unsettled> unsettled_;
  bool reads_previous_ = false;   // the step under way does, from now on
  bool has_two_versions_ = true;  // not in the first step of a run
  bool is_lost_ = false;          // a gradient or a loss was NaN, and no update was made since
  std::uint64_t late_bytes_ = 0;  // sent to agree, and not reported yet
  bool survives_ = false;
  bool overlaps_update_ = false;
  std::function<void()> before_update_;
  std::optional<Settled> settled_;
};

}  // namespace lockstep::train
