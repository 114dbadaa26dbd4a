// Distributed data parallel: every worker has the whole model and its own share of each step.
// Gradients are all-reduced and all workers make the same update, so replicas stay bitwise equal.
//
// Gradients are in one flat buffer in symmetric memory, in the order in which backward completes
// them. A communication thread reduces them bucket by bucket (parallel/ddp/buckets.h) during
// backward; update() waits for the rest, and that wait is the exposed communication. With several
// micro-batches a step, only the backward of the last one reduces. A bucket is reduced when
// backward adds no more to it, even in the middle of a block; offloaded gradients
// (parallel/offload/tier_mover.h) move as whole blocks.
//
//   compute        | forward 0 1 2 | backward 2   | backward 1   | backward 0   | wait | update
//   communication                         | of 2      | 2, 1 |   | of 1  | of 0   |
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/communication/sent_bytes.h"
#include "lockstep/parallel/compression/compressed_all_reduce.h"
#include "lockstep/parallel/ddp/buckets.h"
#include "lockstep/parallel/ddp/table_rows.h"
#include "lockstep/parallel/gradients/tree_sum.h"
#include "lockstep/parallel/offload/overlapped_update.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/communication_group.h"
#include "lockstep/parallel/strategy/device_update.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/step_waits.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/parallel/strategy/worker_position.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::parallel {

class Ddp : public Strategy {
 public:
  // Called by all workers of `world`, which must outlive it. `most_micro_batches` is the most in
  // one worker's share. Throws Error(kInvalidArgument) for an algorithm that does not sum in the
  // order of the reduction.
  Ddp(Communicator& world, const ParallelOptions& options, std::int64_t most_micro_batches);

  std::string_view name() const override { return "ddp"; }
  int worker() const override { return world_.rank(); }
  int workers() const override { return world_.size(); }
  std::span<std::byte> symmetric_memory(std::size_t bytes) override;
  std::span<std::byte> host_symmetric_memory(std::size_t bytes) override;

  // The buckets, in the order in which they are reduced.
  static std::vector<Bucket> buckets(const ParallelOptions& options, const WorkerPosition& position,
                                     const nn::MemoryPlan& plan);

  // The memory it needs, without that of the tree.
  static std::vector<Request> memory(const ParallelOptions& options, const WorkerPosition& position,
                                     const nn::MemoryPlan& plan);

  // What is sent in a step, without compression.
  static Traffic traffic(const ParallelOptions& options, const WorkerPosition& position,
                         const nn::MemoryPlan& plan, const PlannedGroups& calls);

  void start(nn::Replica& replica) override;
  void set_source(int worker) override { source_ = worker; }
  std::optional<Share> next(const StepPlan& plan, std::int64_t steps,
                            std::int64_t last_step) override;
  StepStart begin_step(const StepStart& mine) override;
  void expect_update(const UpdateRequest& request) override;
  void begin_micro_batch(std::int64_t index, std::int64_t count) override;
  void resume_micro_batch(std::int64_t index, std::int64_t count) override;
  void before_forward(std::size_t block) override;
  void after_forward(std::size_t block) override { mover_.after_forward(block); }
  void before_backward(std::size_t block) override;
  void finished_up_to(std::size_t block, std::size_t end) override;
  void accumulated(std::size_t block, const nn::FlatRange& range) override;
  void after_backward(std::size_t block) override;
  std::optional<double> commit_step(std::span<const double> losses) override;
  UpdateResult update(const UpdateRequest& request) override;
  void complete_gradients() override;
  StepSummary end_step(const StepEnd& mine) override;
  void finish_update() override { overlapped_.finish(); }
  std::string compare_workers(bool whole) override;
  void collect() override { overlapped_.finish(); }
  std::vector<Residual> residuals() override;
  TierMover* mover() override { return &mover_; }
  bool needs_block_events() const override {
    return is_last_ || mover_.has_work() || overlapped_.under_way() || zeroes_later_;
  }
  void leave() noexcept override;

 private:
  void broadcast_states();
  void reduce_ready(const Progress& progress);
  void push(std::size_t bucket);
  void finish_tree(std::size_t bucket);
  void complete(std::size_t bucket);
  // On the device of the gradients.
  Communicator& group_of(bool experts) const;
  // Whether gradients are in the memory of a GPU.
  bool on_gpu() const { return replica_->states().gradients.device() != Device{}; }
  std::uint64_t bytes_across() const;
  std::uint64_t reduce(std::size_t bucket);
  std::uint64_t exchange_rows();
  void finish_gradients();
  void wait_for_buckets();
  void begin_gradients();
  void agree_on_scaling();
  UpdateResult traced_update(const UpdateRequest& request);
  TraceLabel label_of(std::size_t bucket, TraceLane lane, std::string_view kind) const;
  WorkerPosition position() const { return {workers(), worker(), most_micro_batches_}; }
  void prepare_compression();
  Data part_of_gradients(nn::FlatRange range) const;

  Communicator& world_;
  ParallelOptions options_;
  std::int64_t most_micro_batches_;
  int source_ = 0;                              // whose initial values all workers have
  std::string algorithm_;                       // of gradients on the device
  std::string host_algorithm_;                  // on the host, beside a GPU
  std::unique_ptr<Communicator> group_;         // the same workers, for the communication thread
  std::unique_ptr<Communicator> host_group_;    // the same, where gradients lie beside a GPU
  std::optional<ExpertDataGroup> expert_data_;  // absent: all workers hold the same
  SymmetricBuffer memory_;
  SymmetricBuffer host_memory_;  // beside a GPU
  nn::Replica* replica_ = nullptr;
  TreeSum tree_;
  std::vector<Bucket> buckets_;
  std::optional<TableRows> table_rows_;
  // With compression: a reducer for each bucket, and their memory.
  std::unique_ptr<CodecDevice> codec_device_;
  std::vector<CompressedAllReduce> compressed_;
  Buffer residuals_;
  SymmetricBuffer staging_;
  double loss_scale_ = 1;      // of the residuals
  OwnClip own_clip_;           // with topk
  bool scales_agree_ = false;  // in FP8: those of all workers are the same

  // Of this step.
  std::int64_t step_ = 0;
  std::int64_t micro_batches_ = 0;
  bool is_last_ = false;
  bool zeroes_later_ = false;  // gradients, when the update under way has read them
  std::size_t next_bucket_ = 0;
  bool has_gradients_ = false;  // of all workers
  StepWaits waits_;
  std::uint64_t bytes_across_before_ = 0;

  TierMover mover_;
  std::optional<DeviceUpdate> device_update_;  // where all states are on a GPU
  OverlappedUpdate overlapped_;                // where the host has them
  CommunicationThread thread_;                 // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
