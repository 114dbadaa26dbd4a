// A Strategy distributes the steps of a run over workers. The trainer calls it at each stage;
// models do not depend on it.
//
//   strategy.start(replica);                          all workers begin alike
//   while (auto share = strategy.next(...)) {         which sequences are this worker's
//     totals = strategy.begin_step(mine);
//     strategy.expect_update(request);
//     for each micro-batch i of the share:
//       strategy.begin_micro_batch(i, n);             then the replica calls, per block:
//       replica.forward_backward(...);                before_forward(0) ... after_backward(0)
//     result = strategy.update(request);              the parameters are those of the next step;
//                                                     the last batch lives until here
//     summary = strategy.end_step(mine);              what all workers did
//   }
//   strategy.leave();                                 before the replica goes
//
// Everything but the block events is called by all workers in the same order, unless the strategy
// is not in_lockstep(). Errors are those of Communicator (a lost worker, a deadline), and
// Error(kMismatch) for workers whose parameters differ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/strategy/served_states.h"
#include "lockstep/parallel/trace/trace.h"

namespace lockstep::parallel {

class TierMover;

// How the sequences of a step are divided into micro-batches, and these over workers: in order,
// consecutive micro-batches for each worker, one more for the first ones if they do not divide
// evenly.
struct StepPlan {
  std::int64_t sequences = 1;  // of a step, of all workers together
  std::int64_t micro = 1;      // of a micro-batch; divides the sequences
  int context = 1;  // consecutive workers that have the same sequences, and other tokens of them

  std::int64_t micro_batches() const { return sequences / micro; }
};

// A worker's part of a step.
struct Share {
  std::int64_t step = 1;               // 1 is the first
  std::int64_t first_micro_batch = 0;  // among those of the step
  std::int64_t micro_batches = 1;
  friend bool operator==(const Share&, const Share&) = default;
};
Share share_of(const StepPlan& plan, std::int64_t step, int worker, int workers);

// The input of one worker to a step, or the sum over all.
struct StepStart {
  std::int64_t targets = 0;
  std::int64_t tokens = 0;
  double loss_scale = 1;  // the factor of the loss, and so of gradients
  bool stops = false;  // this worker was asked to stop / one of them was, and none begins the step
};

struct UpdateRequest {
  optim::OptimizerOptions optimizer;
  std::int64_t updates = 0;  // updates made before this one
  double rate = 0;
  double loss_scale = 1;  // as at the start of the step
  // The update may go on beside the next forward (Strategy::finish_update).
  bool may_overlap = false;
};
struct UpdateResult {
  double gradient_norm = 0;  // before clipping, without the loss scale
  // The same of each block of the whole model; empty: not known.
  std::vector<double> block_norms = {};
  bool has_norm = true;  // false: it was not computed
  bool skipped = false;  // a gradient was infinite or NaN: nothing has changed
};

// The time of a worker's step, and what it sent.
struct StepCost {
  double compute_seconds = 0;        // from the first micro-batch to the update, without waiting
  double communication_seconds = 0;  // during which communication was running
  double exposed_seconds = 0;        // of these, while compute waited
  std::uint64_t bytes_sent = 0;      // of parameters and gradients, as actually sent
  std::uint64_t bytes_across = 0;    // of these, to other nodes
  double staleness = 0;              // updates of others that its gradients did not see
  double elapsed_seconds = 0;        // between the agreements on its beginning and its end
  bool known = true;                 // false: that worker sent nothing, or is lost
};
struct StepEnd {
  std::vector<double> losses;  // the sum of each micro-batch of the share, in order
  StepCost cost;           // compute_seconds including all waits; the strategy fills in the rest
  nn::AxisCost axes = {};  // of tensor groups and pipelines, all of it exposed
};
// A worker's cost with that of the communication inside its model.
StepCost with_axes(StepCost cost, const nn::AxisCost& axes);
struct StepSummary {
  double loss = 0;              // the sum over all micro-batches of the step
  std::vector<StepCost> costs;  // of each worker
};

// A part of the residuals of error feedback (parallel/compression/codec.h).
struct Residual {
  enum class Kind : std::uint8_t {
    kGradients,  // of this worker's own: every worker has one of each element
    kVelocity,   // their average (parallel/compression/own_momentum.h), likewise
    kSums,       // of sums over workers: one worker has it
  };

  nn::FlatRange range;      // in the flat buffer of parameters
  std::span<float> values;  // of these elements
  Kind kind = Kind::kGradients;
  Device device = {};  // where the values lie
};

class Strategy : public nn::BlockListener {
 public:
  virtual std::string_view name() const = 0;  // "alone", "ddp", "zero", "parameter_server"
  virtual int worker() const = 0;
  virtual int workers() const = 0;
  // Whether all workers do the same step at the same time.
  virtual bool in_lockstep() const { return true; }

  // Called before the replica is made: allocates its symmetric memory, which stays in place.
  // parallel/footprint.h has its size, and the other memory of a strategy.
  virtual std::span<std::byte> symmetric_memory(std::size_t /*bytes*/) { return {}; }
  // The same on the host, beside a GPU.
  virtual std::span<std::byte> host_symmetric_memory(std::size_t /*bytes*/) { return {}; }

  // Called once, when worker 0's replica has its initial values: copies them to all workers.
  virtual void start(nn::Replica& replica) = 0;
  // Called before start() by all workers: another worker's replica has them.
  virtual void set_source(int /*worker*/) {}

  // The share of this worker in the step after `steps` finished ones; nothing: the run has ended
  // for it.
  virtual std::optional<Share> next(const StepPlan& plan, std::int64_t steps,
                                    std::int64_t last_step) = 0;
  // This worker was asked to stop: it does not do its share, nor later ones. If workers are not
  // in_lockstep() another worker does it; but if worker 0 stops, the run ends for all.
  virtual void stop() {}
  virtual StepStart begin_step(const StepStart& mine) = 0;
  // Announces the arguments of this step's update(), if they are known before the first
  // micro-batch: a strategy can then update early what backward has completed. Not called where no
  // state may change before update().
  virtual void expect_update(const UpdateRequest& /*request*/) {}
  // Begins a micro-batch of `count` in this share, and zeroes gradients as needed. A share without
  // micro-batches calls begin_micro_batch(0, 0) once.
  //
  // A stage of a pipeline has forwards of several micro-batches under way. There a micro-batch
  // begins with its first backward. Where a stage has several chunks, backwards of others come
  // between those of one micro-batch: resume_micro_batch() says which one continues.
  virtual void begin_micro_batch(std::int64_t index, std::int64_t count) = 0;
  virtual void resume_micro_batch(std::int64_t /*index*/, std::int64_t /*count*/) {}
  // Whether the micro-batch that was begun must tell its blocks, so that it cannot be captured.
  virtual bool needs_block_events() const { return true; }
  // For workers that shall outlive the loss of others (train/run/survival.h), before update():
  // waits until this worker has all gradients and losses of the step. Returns the sum of the
  // losses of all workers, as end_step() does. A worker that returns from it does the update
  // whatever happens to others; one that throws has changed nothing. Nothing where a strategy
  // cannot promise that.
  virtual std::optional<double> commit_step(std::span<const double> /*losses*/) { return {}; }
  virtual UpdateResult update(const UpdateRequest& request) = 0;
  // In place of update(), where others make it (parallel/late_update.h): waits until the flat
  // buffer has the gradients of all workers. Throws Error(kUnsupported) where a strategy cannot.
  virtual void complete_gradients();
  // Completes an update that may overlap. Called before anyone but the next forward reads states;
  // a forward waits block by block. Rethrows the error of the update.
  virtual void finish_update() {}
  virtual StepSummary end_step(const StepEnd& mine) = 0;

  // Takes part in a forward of others (a validation) without computing: provides this worker's
  // shards of parameters.
  virtual void stand_in_for_forward() {}
  // The same for a whole micro-batch of others, numbered as in begin_micro_batch().
  virtual void stand_in_for_micro_batch(std::int64_t /*index*/) {}

  // Compares the parameters that all workers hold, between two steps; called by all workers.
  // Returns their hash; empty where workers have none in common, as those that are not
  // in_lockstep(). Parameters that are gathered block by block are gathered for it: all with
  // `whole`, else one block, another one with each call. Throws Error(kMismatch), with the workers
  // that differ from worker 0.
  virtual std::string compare_workers(bool /*whole*/) { return ""; }

  // Collects everything that a checkpoint holds in worker 0's replica.
  virtual void collect() {}
  // This worker's residuals for a checkpoint, without the loss scale, to be read or written between
  // two steps. Empty without error feedback, and if workers are not in_lockstep(), because they
  // have no common step.
  virtual std::vector<Residual> residuals() { return {}; }

  // If workers are not in_lockstep(): the traces of all ranks, in order and on one clock, at worker
  // 0; empty at the others. Called by all workers that reach the end of the run or were stopped;
  // dead ones are missing.
  virtual std::vector<RankTrace> gather_traces() { return {}; }

  // Called before the replica is destroyed, however the run ends: finishes background work, and the
  // replica is not used afterwards. Only the destructor, or leave() again, may follow.
  virtual void leave() noexcept {}

  // The states that a parameter server has in this process; nullptr without parameter servers.
  virtual ServedStates* served_states() { return nullptr; }

  // The mover between tiers; nullptr if nothing is offloaded.
  virtual TierMover* mover() { return nullptr; }

  // The trace of this worker; off unless keep() was called. The trainer records steps and blocks,
  // the strategy communication and waits.
  Trace& trace() { return trace_; }

 private:
  Trace trace_;
};

}  // namespace lockstep::parallel
