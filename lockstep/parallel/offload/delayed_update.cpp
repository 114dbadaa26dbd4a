#include "lockstep/parallel/offload/delayed_update.h"

#include <utility>

#include "lockstep/base/system/cpu_set.h"
#include "lockstep/parallel/offload/local_update.h"

namespace lockstep::parallel {

void DelayedUpdate::start(nn::Replica& replica, Trace& trace) {
  replica_ = &replica;
  trace_ = &trace;
  if (!replica.plan().tiers.delayed_update) return;
  // One thread beside compute on the CPU, which has the others.
  const bool beside = replica.ops().device() == Device{};
  ops_ = make_cpu_ops(beside ? 1 : CpuSet::of_this_thread().count());
}

UpdateResult DelayedUpdate::update(TierMover& mover, const UpdateRequest& request) {
  finish();
  const UpdateResult result = norm_of_update(*replica_, mover, request);
  if (result.skipped) return result;
  replica_->take_gradients();
  under_way_ = true;
  for (std::size_t block = 0; block < replica_->flat().blocks(); ++block) {
    thread_.push([this, block, request, norm = result.gradient_norm] {
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
  const TraceScope scope(*trace_, {.lane = TraceLane::kTiers, .kind = "fetch", .of = "parameters"});
  replica_->take_parameters();
}

}  // namespace lockstep::parallel
