// The strategy of a run with one worker.
#pragma once

#include "lockstep/parallel/options.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/parallel/tree_sum.h"

namespace lockstep::parallel {

class Alone : public Strategy {
 public:
  // `most_micro_batches` of a step.
  explicit Alone(Reduction reduction = Reduction::kFast, std::int64_t most_micro_batches = 1);

  std::string_view name() const override { return "alone"; }
  int worker() const override { return 0; }
  int workers() const override { return 1; }
  void start(nn::Replica& replica) override;
  std::optional<Share> next(const StepPlan& plan, std::int64_t steps,
                            std::int64_t last_step) override;
  StepStart begin_step(const StepStart& mine) override { return mine; }
  void begin_micro_batch(std::int64_t index, std::int64_t count) override;
  UpdateResult update(const UpdateRequest& request) override;
  StepSummary end_step(const StepEnd& mine) override;

 private:
  Reduction reduction_;
  std::int64_t most_micro_batches_;
  nn::Replica* replica_ = nullptr;
  TreeSum tree_;
  std::int64_t micro_batches_ = 0;  // of this step
};

}  // namespace lockstep::parallel
