#include "lockstep/parallel/alone.h"

#include <numeric>

#include "lockstep/parallel/local_update.h"

namespace lockstep::parallel {

Alone::Alone(Reduction reduction, std::int64_t most_micro_batches)
    : reduction_(reduction), most_micro_batches_(most_micro_batches) {}

void Alone::start(nn::Replica& replica) {
  replica_ = &replica;
  if (reduction_ == Reduction::kTree)
    tree_ = TreeSum(replica.flat().elements(), most_micro_batches_);
}

std::optional<Share> Alone::next(const StepPlan& plan, std::int64_t steps, std::int64_t last_step) {
  if (steps >= last_step) return std::nullopt;
  return share_of(plan, steps + 1, 0, 1);
}

void Alone::begin_micro_batch(std::int64_t index, std::int64_t count) {
  micro_batches_ = count;
  const Tensor& gradients = replica_->states().gradients;
  if (reduction_ == Reduction::kTree && index > 0) tree_.keep(gradients.as<float>(), index - 1);
  if (reduction_ == Reduction::kTree || index == 0) replica_->zero_gradients();
}

UpdateResult Alone::update(const UpdateRequest& request) {
  const TraceScope scope(trace(), {.lane = TraceLane::kCompute, .kind = "update"});
  if (reduction_ == Reduction::kTree) {
    replica_->ops().synchronize();
    tree_.finish(replica_->states().gradients.as<float>(), 0, micro_batches_ - 1);
  }
  return local_update(*replica_, request);
}

StepSummary Alone::end_step(const StepEnd& mine) {
  return {.loss = std::accumulate(mine.losses.begin(), mine.losses.end(), 0.0),
          .costs = {mine.cost}};
}

}  // namespace lockstep::parallel
