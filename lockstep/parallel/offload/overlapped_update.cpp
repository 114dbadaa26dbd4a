#include "lockstep/parallel/offload/overlapped_update.h"

#include <utility>

#include "lockstep/parallel/offload/beside_compute.h"
#include "lockstep/parallel/offload/local_update.h"

namespace lockstep::parallel {

bool OverlappedUpdate::serves(const nn::MemoryPlan& plan) {
  return StagedUpdate::serves(plan) && plan.tiers.overlaps && !plan.tiers.delayed_update &&
         !plan.sharding.any() && plan.stages == 1;
}

void OverlappedUpdate::start(nn::Replica& replica, Trace& trace) {
  replica_ = &replica;
  trace_ = &trace;
  if (!serves(replica.plan())) return;
  ops_ = make_cpu_ops(update_threads(replica.ops().device()));
  staged_.emplace(replica, *ops_);
  needed_ = needed_blocks(replica.plan());
  blocks_ = awaited_ = needed_.size();
  updated_.resize(blocks_);
}

UpdateResult OverlappedUpdate::update(TierMover& mover, const UpdateRequest& request) {
  finish();
  const UpdateResult result = norm_of_update(*replica_, mover, request);
  if (result.skipped) return result;
  staged_->begin(request, result.gradient_norm);
  awaited_ = 0;
  is_complete_ = false;
  for (std::size_t block = 0; block < blocks_; ++block) {
    thread_.push([this, block] {
      const TraceScope scope(*trace_, {.lane = TraceLane::kHost,
                                       .kind = "update",
                                       .of = "block",
                                       .index = static_cast<std::int64_t>(block)});
      updated_[block] = staged_->update(block);
      return std::uint64_t{0};
    });
  }
  return result;
}

void OverlappedUpdate::before_forward(std::size_t block) {
  if (!under_way()) return;
  const std::size_t needed = needed_[block];
  if (awaited_ >= needed) return;
  const std::size_t later = blocks_ - needed;
  if (thread_.under_way() > later) {
    const TraceScope scope(*trace_, {.lane = TraceLane::kWaiting, .kind = "update"});
    thread_.wait(later);
  } else {
    thread_.wait(later);  // throws what a task threw
  }
  for (; awaited_ < needed; ++awaited_) replica_->ops().wait(updated_[awaited_]);
}

void OverlappedUpdate::finish() {
  if (is_complete_) return;
  {
    const TraceScope scope(*trace_, {.lane = TraceLane::kWaiting, .kind = "update"});
    thread_.wait();
    staged_->synchronize();
  }
  is_complete_ = true;
  awaited_ = blocks_;
}

}  // namespace lockstep::parallel
