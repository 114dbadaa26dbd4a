// The strategy of a run with one worker.
#pragma once

#include "lockstep/parallel/gradients/tree_sum.h"
#include "lockstep/parallel/offload/delayed_update.h"
#include "lockstep/parallel/offload/early_update.h"
#include "lockstep/parallel/offload/overlapped_update.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/device_update.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

class SingleWorker : public Strategy {
 public:
  // `most_micro_batches`: the most in a step.
  explicit SingleWorker(Reduction reduction = Reduction::kFast,
                        std::int64_t most_micro_batches = 1);

  std::string_view name() const override { return "alone"; }
  int worker() const override { return 0; }
  int workers() const override { return 1; }
  void start(nn::Replica& replica) override;
  std::optional<Share> next(const StepPlan& plan, std::int64_t steps,
                            std::int64_t last_step) override;
  StepStart begin_step(const StepStart& mine) override { return mine; }
  void expect_update(const UpdateRequest& request) override { early_.expect(request); }
  bool needs_block_events() const override {
    return mover_.has_work() || early_.is_on() || overlapped_.under_way() ||
           delayed_.sends_parameters() || zeroes_later_;
  }
  void begin_micro_batch(std::int64_t index, std::int64_t count) override;
  void before_forward(std::size_t block) override;
  void after_forward(std::size_t block) override { mover_.after_forward(block); }
  void before_backward(std::size_t block) override;
  void after_backward(std::size_t block) override;
  UpdateResult update(const UpdateRequest& request) override;
  void complete_gradients() override;
  StepSummary end_step(const StepEnd& mine) override;
  // A checkpoint holds all updates, and the step after it uses their parameters.
  void collect() override;
  void finish_update() override {
    overlapped_.finish();
    delayed_.await_parameters();
  }
  TierMover* mover() override { return &mover_; }
  void leave() noexcept override;

 private:
  void finish_tree(nn::FlatRange range);

  Reduction reduction_;
  std::int64_t most_micro_batches_;
  nn::Replica* replica_ = nullptr;
  TreeSum tree_;
  std::int64_t micro_batches_ = 0;  // of this step
  bool is_last_ = false;            // micro-batch
  bool zeroes_later_ = false;       // gradients, when the update under way has read them
  TierMover mover_;
  std::optional<DeviceUpdate> device_update_;
  // Declared last, to end before what their tasks use.
  EarlyUpdate early_;
  DelayedUpdate delayed_;
  OverlappedUpdate overlapped_;
};

}  // namespace lockstep::parallel
