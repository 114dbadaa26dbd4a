// Distributed data parallel: every worker has the whole model and its own part of each step; their
// gradients are added up, and all update alike, so that they stay equal to the bit.
//
// Gradients lie in one flat buffer, in the order in which backward completes them, in memory that
// the workers of a machine share. They are reduced bucket by bucket (parallel/ddp/buckets.h) by a
// thread of communication while backward goes on; update() waits for what is not done then: that
// wait is the exposed communication. With several micro-batches a step only the last one's backward
// synchronises. A bucket leaves when backward adds no more to what is in it, be it in the middle of
// a block; gradients that leave the device (parallel/offload/tier_mover.h) do so as whole
// blocks.
//
//   compute        | forward 0 1 2 | backward 2   | backward 1   | backward 0   | wait | update
//   communication                         | of 2      | 2, 1 |   | of 1  | of 0   |
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/communication/sent_bytes.h"
#include "lockstep/parallel/compression/compressed_all_reduce.h"
#include "lockstep/parallel/ddp/buckets.h"
#include "lockstep/parallel/ddp/table_rows.h"
#include "lockstep/parallel/gradients/tree_sum.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/step_waits.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

class Ddp : public Strategy {
 public:
  // Called by all workers of `world`, which outlives it. `most_micro_batches` of one worker's
  // share. Throws Error(kInvalidArgument) for an algorithm that does not add up in the order of the
  // reduction.
  Ddp(Communicator& world, const ParallelOptions& options, std::int64_t most_micro_batches);

  std::string_view name() const override { return "ddp"; }
  int worker() const override { return world_.rank(); }
  int workers() const override { return world_.size(); }
  std::span<std::byte> symmetric_memory(std::size_t bytes) override;

  // Which gradients are reduced together, in the order in which they leave.
  static std::vector<Bucket> buckets(const ParallelOptions& options, const WorkerPosition& position,
                                     const nn::MemoryPlan& plan);

  // What it takes besides the tree.
  static std::vector<Request> memory(const ParallelOptions& options, const WorkerPosition& position,
                                     const nn::MemoryPlan& plan);

  // What is sent in a step, where gradients are not compressed.
  static Traffic traffic(const ParallelOptions& options, const WorkerPosition& position,
                         const nn::MemoryPlan& plan, PlannedCalls& calls);

  void start(nn::Replica& replica) override;
  std::optional<Share> next(const StepPlan& plan, std::int64_t steps,
                            std::int64_t last_step) override;
  StepStart begin_step(const StepStart& mine) override;
  void expect_update(const UpdateRequest& request) override;
  void begin_micro_batch(std::int64_t index, std::int64_t count) override;
  void before_forward(std::size_t block) override { mover_.before_forward(block); }
  void after_forward(std::size_t block) override { mover_.after_forward(block); }
  void before_backward(std::size_t block) override { mover_.before_backward(block); }
  void finished_up_to(std::size_t block, std::size_t end) override;
  void accumulated(std::size_t block, const nn::FlatRange& range) override;
  void after_backward(std::size_t block) override;
  UpdateResult update(const UpdateRequest& request) override;
  StepSummary end_step(const StepEnd& mine) override;
  std::vector<Residual> residuals() override;
  TierMover* mover() override { return &mover_; }
  void leave() noexcept override;

 private:
  void broadcast_states();
  void compare_parameters();
  void reduce_ready(const Progress& progress);
  void complete(std::size_t bucket);
  std::uint64_t reduce(std::size_t bucket);
  std::uint64_t exchange_rows();
  void wait_for_buckets();
  UpdateResult traced_update(const UpdateRequest& request);
  TraceLabel label_of(std::size_t bucket, TraceLane lane, std::string_view kind) const;
  WorkerPosition position() const { return {workers(), worker(), most_micro_batches_}; }
  void prepare_compression();
  Data part_of_gradients(nn::FlatRange range) const;

  Communicator& world_;
  ParallelOptions options_;
  std::int64_t most_micro_batches_;
  std::string algorithm_;
  std::unique_ptr<Communicator> group_;  // the same workers, for the thread of communication
  SymmetricBuffer memory_;
  nn::Replica* replica_ = nullptr;
  TreeSum tree_;
  std::vector<Bucket> buckets_;
  std::optional<TableRows> table_rows_;
  // Where gradients are compressed: a reducer for each bucket, and what they work in.
  std::vector<CompressedAllReduce> compressed_;
  std::vector<float> residuals_;
  SymmetricBuffer staging_;
  double loss_scale_ = 1;  // of the residuals
  OwnClip own_clip_;       // with topk

  // Of this step.
  std::int64_t step_ = 0;
  std::int64_t micro_batches_ = 0;
  bool is_last_ = false;
  std::size_t next_bucket_ = 0;
  StepWaits waits_;
  std::uint64_t bytes_across_before_ = 0;
  std::int64_t updates_ = 0;  // since the start

  TierMover mover_;
  CommunicationThread thread_;  // last, to end before what its tasks use
};

}  // namespace lockstep::parallel
