#include "lockstep/parallel/single_worker.h"

#include <numeric>
#include <utility>

#include "lockstep/parallel/offload/local_update.h"

namespace lockstep::parallel {

SingleWorker::SingleWorker(Reduction reduction, std::int64_t most_micro_batches)
    : reduction_(reduction), most_micro_batches_(most_micro_batches) {}

void SingleWorker::start(nn::Replica& replica) {
  replica_ = &replica;
  mover_.start(replica, trace());
  early_.start(replica, mover_, trace());
  delayed_.start(replica, trace());
  overlapped_.start(replica, trace());
  if (DeviceUpdate::serves(replica.plan())) {
    device_update_.emplace(replica, reduction_ == Reduction::kTree);
  }
  if (reduction_ == Reduction::kTree)
    tree_ = TreeSum(replica.ops(), replica.states().gradients.device(), replica.flat().elements(),
                    most_micro_batches_);
}

std::optional<Share> SingleWorker::next(const StepPlan& plan, std::int64_t steps,
                                        std::int64_t last_step) {
  if (steps >= last_step) return std::nullopt;
  return share_of(plan, steps + 1, 0, 1);
}

void SingleWorker::begin_micro_batch(std::int64_t index, std::int64_t count) {
  micro_batches_ = count;
  is_last_ = index + 1 == count;
  const bool tree = reduction_ == Reduction::kTree;
  mover_.begin_micro_batch(!tree && index > 0);
  if (tree && index > 0) tree_.keep(replica_->states().gradients, index - 1);
  if (count == 0) overlapped_.finish();  // no forward does it
  if ((!tree && index > 0) || mover_.moves_gradients()) return;
  if (count == 0) delayed_.let_gradients_change();
  zeroes_later_ = overlapped_.under_way() || delayed_.reads_gradients();
  if (zeroes_later_) return;
  count == 0 ? replica_->zero_gradients() : replica_->begin_gradients();
}

void SingleWorker::before_forward(std::size_t block) {
  overlapped_.before_forward(block);
  delayed_.before_forward(block);
  mover_.before_forward(block);
}

void SingleWorker::before_backward(std::size_t block) {
  if (std::exchange(zeroes_later_, false)) {
    delayed_.let_gradients_change();
    replica_->begin_gradients();
  }
  mover_.before_backward(block);
}

void SingleWorker::finish_tree(nn::FlatRange range) {
  if (reduction_ != Reduction::kTree || range.elements == 0) return;
  const Tensor part = replica_->states().slice(range).gradients;
  tree_.finish(part, range.first, micro_batches_ - 1);
}

void SingleWorker::after_backward(std::size_t block) {
  mover_.after_backward(block);
  if (!early_.is_on() || !is_last_) return;
  replica_->ops().synchronize();
  early_.push(block, [this, block] {
    mover_.await_gradients(block);
    finish_tree(replica_->flat().range(block));
  });
}

void SingleWorker::collect() {
  delayed_.finish();
  finish_update();
}

void SingleWorker::leave() noexcept {
  overlapped_.settle();
  delayed_.settle();
  early_.settle();
  mover_.settle();
}

UpdateResult SingleWorker::update(const UpdateRequest& request) {
  const TraceScope scope(trace(), {.lane = TraceLane::kCompute, .kind = "update"});
  if (early_.is_on()) {
    early_.finish();
    return early_.result();
  }
  const nn::FlatRange all{0, replica_->flat().elements()};
  if (device_update_) {
    finish_tree(all);
    return device_update_->run(request);
  }
  mover_.wait();
  replica_->ops().synchronize();
  finish_tree(all);
  replica_->update_scaling();
  if (delayed_.is_on()) return delayed_.update(mover_, request);
  const bool beside_gpu = replica_->ops().device() != Device{};
  if (overlapped_.serves() && (request.may_overlap || beside_gpu)) {
    const UpdateResult result = overlapped_.update(mover_, request);
    if (!request.may_overlap) overlapped_.finish();
    return result;
  }
  return local_update(*replica_, mover_, request);
}

void SingleWorker::complete_gradients() {
  mover_.wait();
  replica_->ops().synchronize();
  finish_tree({0, replica_->flat().elements()});
}

StepSummary SingleWorker::end_step(const StepEnd& mine) {
  return {.loss = std::accumulate(mine.losses.begin(), mine.losses.end(), 0.0),
          .costs = {with_axes(mine.cost, mine.axes)}};
}

}  // namespace lockstep::parallel
