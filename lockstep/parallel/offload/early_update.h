// The update of blocks whose gradients are complete, on the host while backward goes on with the
// others.
//
//   compute      | ... | backward 2 | backward 1        | backward 0        |
//   mover        |                  | store gradients 2 | store gradients 1 | store gradients 0
//   host                                                | update 2          | update 1 | update 0
//
// That can be where the optimizer's states lie on the host and nothing has to be known of all
// gradients first: they are not clipped, and no loss scale may turn out too large. A block whose
// gradients are infinite or NaN is not updated, nor is any after it; those before it were.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

class EarlyUpdate {
 public:
  // Whether such a run updates early.
  static bool can_be(const nn::MemoryPlan& plan, const optim::OptimizerOptions& optimizer);

  // All outlive its work.
  void start(nn::Replica& replica, TierMover& mover, Trace& trace);
  // Of the step that begins; its settings outlive it.
  void expect(const UpdateRequest& request);
  bool is_on() const { return request_.has_value(); }

  // This worker's part of a block's gradients is complete, in its flat buffer, when `ready`
  // returns. One thread at a time.
  void push(std::size_t block, std::function<void()> ready = {});
  // Until all that were pushed are updated; the step is over then. Throws what a task threw.
  void finish();
  // The norm of this worker's parts, as parallel/gradients/gradient_chunks.h adds it up where they
  // are all.
  double norm() const;
  void settle() noexcept { thread_.settle(); }

 private:
  void update(std::size_t block);

  nn::Replica* replica_ = nullptr;
  TierMover* mover_ = nullptr;
  Trace* trace_ = nullptr;
  std::unique_ptr<Ops> ops_;               // of the host, beside the replica's
  std::vector<double> workspace_;          // for sums
  std::vector<std::vector<double>> sums_;  // of the chunks of each block
  std::optional<UpdateRequest> request_;
  bool finite_ = true;
  CommunicationThread thread_;  // last, to end before what its tasks use
};

}  // namespace lockstep::parallel
