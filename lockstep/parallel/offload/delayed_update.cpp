#include "lockstep/parallel/offload/delayed_update.h"

#include <utility>

#include "lockstep/parallel/offload/beside_compute.h"
#include "lockstep/parallel/offload/local_update.h"

namespace lockstep::parallel {
namespace {

void synchronize(std::optional<Stream>& stream) noexcept {
  try {
    if (stream) stream->synchronize();
  } catch (...) {  // of the copies of an update that has ended with an error
  }
}

}  // namespace

void DelayedUpdate::start(nn::Replica& replica, Trace& trace) {
  replica_ = &replica;
  trace_ = &trace;
  const nn::MemoryPlan& plan = replica.plan();
  if (!plan.tiers.delayed_update) return;
  ops_ = make_cpu_ops(update_threads(plan.device));
  needed_ = needed_blocks(plan);
  const std::size_t blocks = replica.flat().blocks();
  left_.resize(blocks);
  if (plan.tiers.gradients == Tier::kDevice) down_.emplace(plan.device);
  if (plan.tiers.parameters != Tier::kDevice) return;
  up_.emplace(plan.device);
  came_.resize(blocks);
  awaited_ = blocks;
}

// The next step's gradients have another buffer, or come after those of this one have left.
void DelayedUpdate::take_gradients() {
  if (!down_) {
    replica_->take_gradients();
    return;
  }
  reads_gradients_ = true;
  for (std::size_t block = 0; block < left_.size(); ++block) {
    const nn::States there = replica_->mine(block), here = delayed_states(*replica_, block);
    down_->run([to = here.gradients, from = there.gradients] { copy(to, from); });
    left_[block] = down_->record();
  }
}

void DelayedUpdate::let_gradients_change() {
  if (std::exchange(reads_gradients_, false)) replica_->ops().wait(left_.back());
}

void DelayedUpdate::take_parameters() {
  if (!up_) {
    replica_->take_parameters();
    return;
  }
  up_->wait(replica_->ops().record());  // nothing computes with the parameters before any more
  awaited_ = 0;
  for (std::size_t block = 0; block < came_.size(); ++block) {
    const nn::States there = replica_->mine(block), here = delayed_states(*replica_, block);
    up_->run([to = there.parameters, from = here.parameters] { copy(to, from); });
    came_[block] = up_->record();
  }
}

void DelayedUpdate::before_forward(std::size_t block) {
  if (!sends_parameters() || awaited_ >= needed_[block]) return;
  awaited_ = needed_[block];
  replica_->ops().wait(came_[awaited_ - 1]);  // and so for those before it
}

void DelayedUpdate::await_parameters() {
  if (!sends_parameters()) return;
  const TraceScope scope(*trace_, {.lane = TraceLane::kTiers, .kind = "fetch", .of = "parameters"});
  up_->synchronize();
  awaited_ = came_.size();
}

UpdateResult DelayedUpdate::update(TierMover& mover, const UpdateRequest& request) {
  finish();
  const UpdateResult result = norm_of_update(*replica_, mover, request);
  if (result.skipped) return result;
  take_gradients();
  under_way_ = true;
  for (std::size_t block = 0; block < replica_->flat().blocks(); ++block) {
    // Its gradients are here, and its parameters of the update before are not read any more.
    const Event came = up_ ? came_[block] : Event();
    thread_.push([this, block, left = left_[block], came, request, norm = result.gradient_norm] {
      left.wait();
      came.wait();
      const TraceScope scope(*trace_, {.lane = TraceLane::kHost,
                                       .kind = "update",
                                       .of = "block",
                                       .index = static_cast<std::int64_t>(block)});
      update_delayed(*replica_, *ops_, block, request, norm);
      ops_->synchronize();
      return std::uint64_t{0};
    });
  }
  return result;
}

void DelayedUpdate::finish() {
  if (!std::exchange(under_way_, false)) return;
  {
    const TraceScope scope(*trace_, {.lane = TraceLane::kWaiting, .kind = "update"});
    thread_.wait();
  }
  take_parameters();
}

void DelayedUpdate::settle() noexcept {
  thread_.settle();
  synchronize(down_);
  synchronize(up_);
}

}  // namespace lockstep::parallel
