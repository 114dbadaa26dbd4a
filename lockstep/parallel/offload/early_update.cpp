#include "lockstep/parallel/offload/early_update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/system/cpu_set.h"
#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/parallel/offload/local_update.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kSums = 64;

}  // namespace

bool EarlyUpdate::can_be(const nn::MemoryPlan& plan, const optim::OptimizerOptions& optimizer) {
  // The operations of a GPU are those of compute, which cannot sum gradients there beside it.
  const bool can_sum = plan.device == Device{} || plan.tiers.gradients == Tier::kHost;
  // Ranks that divide a model agree on whether a gradient is infinite, after backward.
  const bool is_whole =
      plan.stages == 1 && plan.flat.tensor_group().size == 1 && plan.flat.expert_group().size == 1;
  return can_sum && is_whole && plan.tiers.update() == Tier::kHost && plan.tiers.overlaps &&
         !plan.tiers.delayed_update && optimizer.max_grad_norm == 0 &&
         plan.setup.dtype != DType::kF16;
}

void EarlyUpdate::start(nn::Replica& replica, TierMover& mover, Trace& trace) {
  replica_ = &replica;
  mover_ = &mover;
  trace_ = &trace;
}

void EarlyUpdate::expect(const UpdateRequest& request) {
  if (!can_be(replica_->plan(), request.optimizer)) return;
  // One thread beside compute on the CPU, which has the others.
  const bool beside = replica_->ops().device() == Device{};
  if (!ops_) ops_ = make_cpu_ops(beside ? 1 : CpuSet::of_this_thread().count());
  workspace_.resize(kSums);
  sums_.assign(replica_->flat().blocks(), {});
  finite_ = true;
  request_.emplace(request);
}

void EarlyUpdate::push(std::size_t block, std::function<void()> ready) {
  thread_.push([this, block, ready = std::move(ready)] {
    if (ready) ready();
    update(block);
    return std::uint64_t{0};
  });
}

void EarlyUpdate::update(std::size_t block) {
  if (!finite_ || replica_->my_range(block).elements == 0) return;
  const TraceScope scope(*trace_, {.lane = TraceLane::kHost,
                                   .kind = "update",
                                   .of = "block",
                                   .index = static_cast<std::int64_t>(block)});
  sums_[block] = sums_of_mine(*replica_, *ops_, *mover_, block, tensor_of(std::span(workspace_)));
  finite_ = std::ranges::all_of(sums_[block], [](double sum) { return std::isfinite(sum); });
  if (finite_) update_mine(*replica_, *ops_, *mover_, block, *request_, 0);
  ops_->synchronize();
}

void EarlyUpdate::finish() {
  thread_.wait();
  request_.reset();
}

UpdateResult EarlyUpdate::result() const {
  std::vector<double> all;
  ModelNorm norm;
  for (std::size_t block = sums_.size();
       block-- > 0;) {  // as their ranges stand in the flat buffer
    all.insert(all.end(), sums_[block].begin(), sums_[block].end());
  }
  for (const std::vector<double>& sums : sums_) norm.blocks.push_back(norm_of_chunks(sums));
  norm.whole = norm_of_chunks(all);
  return result_of(std::move(norm), 1);
}

}  // namespace lockstep::parallel
