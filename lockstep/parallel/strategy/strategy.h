// How the workers of a run share its steps. A trainer tells its strategy what happens; models know
// nothing of it.
//
//   strategy.start(replica);                          all workers begin alike
//   while (auto share = strategy.next(...)) {         which sequences are this worker's
//     totals = strategy.begin_step(mine);
//     strategy.expect_update(request);
//     for each micro-batch i of the share:
//       strategy.begin_micro_batch(i, n);             then the replica tells of its blocks:
//       replica.forward_backward(...);                before_forward(0) ... after_backward(0)
//     result = strategy.update(request);              the parameters are those of the next step;
//                                                     the last batch lives until here
//     summary = strategy.end_step(mine);              what all workers did
//   }
//   strategy.leave();                                 before the replica goes
//
// Everything but the block events is called by all workers in the same order, unless the strategy
// is not in_lockstep(). Errors: what Communicator throws (a worker that
// is gone, a deadline), and Error(kMismatch) for workers whose parameters are no longer equal.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/trace/trace.h"

namespace lockstep::parallel {

class TierMover;

// How the sequences of a step fall into micro-batches and these onto workers: in order, each worker
// a run of them, the first ones one more where they do not come out even.
struct StepPlan {
  std::int64_t sequences = 1;  // of a step, of all workers together
  std::int64_t micro = 1;      // of a micro-batch; divides the sequences

  std::int64_t micro_batches() const { return sequences / micro; }
};

// A worker's part of a step.
struct Share {
  std::int64_t step = 1;               // 1 is the first
  std::int64_t first_micro_batch = 0;  // among those of the step
  std::int64_t micro_batches = 1;
};
Share share_of(const StepPlan& plan, std::int64_t step, int worker, int workers);

// What one worker brings to a step, and all of them.
struct StepStart {
  std::int64_t targets = 0;
  std::int64_t tokens = 0;
  double loss_scale = 1;  // gradients are those of so many times the loss
  bool stops = false;     // this worker was asked to end / one of them was: none begins the step
};

struct UpdateRequest {
  const optim::OptimizerOptions& optimizer;
  std::int64_t updates = 0;  // that were made before this one
  double rate = 0;
  double loss_scale = 1;  // as at the start of the step
};
struct UpdateResult {
  double gradient_norm = 0;  // before clipping, without the loss scale
  bool has_norm = true;      // false: nobody took it, since nothing depends on it
  bool skipped = false;      // a gradient was infinite or NaN: nothing has changed
};

// Where the time of a worker's step went, and what it sent.
struct StepCost {
  double compute_seconds = 0;        // from the first micro-batch to the update, without waiting
  double communication_seconds = 0;  // in which something was under way
  double exposed_seconds = 0;        // of these, in which compute waited for it
  std::uint64_t bytes_sent = 0;      // of parameters and gradients, as they went out
  std::uint64_t bytes_across = 0;    // of these, to other machines
  double staleness = 0;              // updates of others that its gradients did not know of
  double elapsed_seconds = 0;        // between the agreements on its beginning and its end
  bool known = true;                 // false: nothing was heard of that worker, or it is gone
};
struct StepEnd {
  std::vector<double> losses;  // the sum of each micro-batch of the share, in order
  StepCost cost;  // compute_seconds with all waiting; the rest is the strategy's to say
};
struct StepSummary {
  double loss = 0;              // the sum over all micro-batches of the step
  std::vector<StepCost> costs;  // of each worker
};

// A part of what error feedback (parallel/compression/codec.h) has kept back of gradients.
struct Residual {
  enum class Kind : std::uint8_t {
    kGradients,  // of this worker's own: every worker has one of each element
    kVelocity,   // their average (parallel/compression/own_momentum.h), likewise
    kSums,       // of sums over workers: one worker has it
  };

  nn::FlatRange range;      // in the flat buffer of parameters
  std::span<float> values;  // of these elements
  Kind kind = Kind::kGradients;
};

class Strategy : public nn::BlockListener {
 public:
  virtual std::string_view name() const = 0;  // "alone", "ddp", "zero", "parameter_server"
  virtual int worker() const = 0;
  virtual int workers() const = 0;
  // Whether all workers do the same step at the same time.
  virtual bool in_lockstep() const { return true; }

  // Before there is a replica: the symmetric memory for it, which stays in place.
  // parallel/footprint.h says how much that is, and what else a strategy takes.
  virtual std::span<std::byte> symmetric_memory(std::size_t /*bytes*/) { return {}; }

  // Once, when worker 0's replica holds what the run begins with: everybody's does then.
  virtual void start(nn::Replica& replica) = 0;

  // The share of this worker in the step after `steps` finished ones; nothing: the run is over for
  // it.
  virtual std::optional<Share> next(const StepPlan& plan, std::int64_t steps,
                                    std::int64_t last_step) = 0;
  // This worker does not do the share that it has, nor others: it was asked to end. Where workers
  // are not in_lockstep() somebody else does; but with worker 0 the run ends for all.
  virtual void stop() {}
  virtual StepStart begin_step(const StepStart& mine) = 0;
  // What update() of this step will be asked, if that is known before its first micro-batch: some
  // can then update early what backward has completed.
  virtual void expect_update(const UpdateRequest& /*request*/) {}
  // Of `count` in this share; gradients are zeroed as they have to be. A share without any is told
  // of by begin_micro_batch(0, 0) alone.
  virtual void begin_micro_batch(std::int64_t index, std::int64_t count) = 0;
  virtual UpdateResult update(const UpdateRequest& request) = 0;
  virtual StepSummary end_step(const StepEnd& mine) = 0;

  // For a forward of others, a validation's, that this worker has no part in: where their
  // parameters are sharded it gives its own.
  virtual void stand_in_for_forward() {}
  // The same for a whole micro-batch of others, numbered as in begin_micro_batch().
  virtual void stand_in_for_micro_batch(std::int64_t /*index*/) {}

  // Brings everything that a checkpoint holds to worker 0's replica.
  virtual void collect() {}
  // What a checkpoint holds besides: this worker's residuals, without the loss scale, to be read or
  // written between two steps. None where nothing is kept back, and where workers are not
  // in_lockstep(): there no moment belongs to all of them.
  virtual std::vector<Residual> residuals() { return {}; }

  // Where workers are not in_lockstep(): what each did when, at worker 0, ranks in order and on one
  // clock; nothing at the others. All call it that get to the end of the run, or were stopped.
  // Who dies is left out.
  virtual std::vector<RankTrace> gather_traces() { return {}; }

  // Before the replica of start() goes, however the run ends: what went on beside compute has
  // ended, and nothing touches the replica any more. Nothing but the destructor follows, or this
  // once more.
  virtual void leave() noexcept {}

  // What moves between tiers; nullptr where nothing does.
  virtual TierMover* mover() { return nullptr; }

  // What this worker does when; off unless somebody has it keep(). Steps and blocks are the
  // trainer's to tell, communication and waiting for it the strategy's.
  Trace& trace() { return trace_; }

 private:
  Trace trace_;
};

}  // namespace lockstep::parallel
