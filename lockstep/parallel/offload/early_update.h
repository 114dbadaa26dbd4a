// Updates blocks on the host as soon as their gradients are final, during backward of the others.
//
//   compute      | ... | backward 2 | backward 1        | backward 0        |
//   mover        |                  | store gradients 2 | store gradients 1 | store gradients 0
//   host                                                | update 2          | update 1 | update 0
//
// This needs optimizer states on the host, a model that no group of ranks divides, and no decision
// that depends on all gradients: no clipping and no loss scale. A block with infinite or NaN
// gradients is not updated, nor is any block after it; earlier blocks have been updated.
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
  // Whether a run can update early.
  static bool can_be(const nn::MemoryPlan& plan, const optim::OptimizerOptions& optimizer);

  // All arguments must outlive it.
  void start(nn::Replica& replica, TierMover& mover, Trace& trace);
  // The request of the step that begins; its settings must outlive the step.
  void expect(const UpdateRequest& request);
  bool is_on() const { return request_.has_value(); }

  // Queues the update of a block. Its gradients on this worker are final, in the flat buffer, when
  // `ready` returns. One thread at a time.
  void push(std::size_t block, std::function<void()> ready = {});
  // Waits until all pushed blocks are updated and ends the step. Rethrows the error of a task.
  void finish();
  // Of the step that ended: its norms are those of this worker's gradients.
  UpdateResult result() const;
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
  CommunicationThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
