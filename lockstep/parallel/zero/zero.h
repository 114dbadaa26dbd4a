// ZeRO: data parallelism with sharded states.
//
//   stage   a worker holds 1/N of                        bytes a parameter, 16 bits    sent a step
//   1       the optimizer's states                       4 + 12/N                      2 P
//   2       and the gradients                            2 + 14/N                      2 P
//   3       and the parameters                           16/N                          3 P
//
// A communication thread reduce-scatters every block's gradients during backward. A worker updates
// its shards. At stages 1 and 2 all parameters are then gathered; at stage 3 they are gathered
// block by block, for forward and again for backward, by the plan's schedule
// (nn/memory/gather_plan.h), and freed in between:
//
//   compute        | forward 0 | forward 1 | forward 2 | ...  | backward 2 | backward 1 | ...
//   communication  | gather 1  | gather 2  | gather 3  |      | gather 1   | reduce 2, gather 0
//
// With several micro-batches a step, gradients are reduce-scattered after each, which saves memory,
// or only after the last, which sends less (parallel.no_sync). The bits are those of
// parallel/ddp/ddp.h, unless quantization is on (parallel/zero/exchange.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/gradients/model_norm.h"
#include "lockstep/parallel/gradients/tree_sum.h"
#include "lockstep/parallel/offload/early_update.h"
#include "lockstep/parallel/offload/staged_update.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/step_waits.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/parallel/strategy/worker_position.h"
#include "lockstep/parallel/zero/exchange.h"
#include "lockstep/parallel/zero/sharded_norm.h"

namespace lockstep::parallel {

class Zero : public Strategy {
 public:
  // Called by all workers of `world`, which must outlive it. `most_micro_batches` is the most in
  // one worker's share.
  Zero(Communicator& world, const ParallelOptions& options, std::int64_t most_micro_batches);

  std::string_view name() const override { return "zero"; }
  int worker() const override { return world_.rank(); }
  int workers() const override { return world_.size(); }
  std::span<std::byte> symmetric_memory(std::size_t bytes) override;
  std::span<std::byte> host_symmetric_memory(std::size_t bytes) override;

  void start(nn::Replica& replica) override;
  // All workers push the same tasks in the same order, so the tasks of this one end, or fail if
  // another worker is lost.
  void leave() noexcept override;
  TierMover* mover() override { return &mover_; }
  std::optional<Share> next(const StepPlan& plan, std::int64_t steps,
                            std::int64_t last_step) override;
  StepStart begin_step(const StepStart& mine) override;
  void expect_update(const UpdateRequest& request) override { early_.expect(request); }
  bool needs_block_events() const override {
    return adds_up_ || replica_->plan().gathers_parameters() || mover_.has_work();
  }
  void begin_micro_batch(std::int64_t index, std::int64_t count) override;
  void resume_micro_batch(std::int64_t index, std::int64_t count) override;
  void before_forward(std::size_t block) override;
  void after_forward(std::size_t block) override { mover_.after_forward(block); }
  void before_backward(std::size_t block) override;
  void after_backward(std::size_t block) override;
  void stand_in_for_forward() override;
  void stand_in_for_micro_batch(std::int64_t index) override;
  UpdateResult update(const UpdateRequest& request) override;
  StepSummary end_step(const StepEnd& mine) override;
  std::string compare_workers(bool whole) override;

 private:
  // Tasks of the communication thread are numbered from 1; 0: none.
  using Ticket = std::uint64_t;

  std::size_t backward_step(std::size_t block) const;
  void enter(std::size_t step);
  void prepare_backward(std::size_t block);
  void finish_backward(std::size_t block);
  void clear_gradients(std::size_t block);
  Tensor part_in(std::size_t block, const Tensor& unit) const;
  void add_up(std::size_t block);
  void finish_tree(std::size_t block);
  ModelNorm gradient_norm();
  std::vector<double> replicated_squares_of_all();
  bool completes() const;
  // `updated`: this worker's part has come.
  void gather_parameters(std::size_t block, const Event& updated = {});
  void update_blocks(const UpdateRequest& request, double gradient_norm, bool is_updated);
  Ticket push(CommunicationThread::Task task);
  void wait_for(Ticket ticket, const TraceLabel& label);

  std::uint64_t run_gather(std::size_t gather);
  std::uint64_t run_add_up(std::size_t block);
  std::uint64_t run_gather_parameters(std::size_t block);

  Communicator& world_;
  ParallelOptions options_;
  std::int64_t most_micro_batches_;
  std::unique_ptr<Exchange> exchange_;  // used by the communication thread
  SymmetricBuffer memory_;
  SymmetricBuffer host_memory_;  // beside a GPU
  nn::Replica* replica_ = nullptr;
  ShardedNorm norm_;
  TreeSum tree_;
  std::vector<std::size_t> first_writers_;  // of each block's gradients: the last block that reads

  // Of this step.
  std::int64_t micro_batch_ = 0;
  std::int64_t micro_batches_ = 0;
  bool adds_up_ = false;  // this micro-batch's gradients are reduce-scattered
  StepWaits waits_;
  std::uint64_t bytes_across_before_ = 0;
  std::size_t compared_ = 0;  // the gathers whose block was compared

  Ticket pushed_ = 0;
  std::vector<Ticket> gathers_;   // of the plan
  std::vector<Ticket> added_up_;  // of each block
  Ticket last_added_up_ = 0;
  TierMover mover_;
  TierMover::Ticket last_arrived_ = 0;  // of gradients that are written to a file
  EarlyUpdate early_;
  std::optional<StagedUpdate> staged_;  // by the host, beside a GPU
  CommunicationThread thread_;          // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
