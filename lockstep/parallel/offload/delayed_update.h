// Computes the update of a step on the host during the next step, which uses the parameters before
// it. This is the one-step delayed update of ZeRO-Offload.
//
//   compute   | step 1, parameters 0 | step 2, parameters 0 | step 3, parameters 1 | ...
//   host      |                      | update 1             | update 2             | ...
//
// The host reads the gradients of one step while those of the next arrive, and writes parameters
// beside those that are computed with: there are two buffers of each (nn/memory/memory_plan.h).
#pragma once

#include <memory>

#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

class DelayedUpdate {
 public:
  // Both must outlive it.
  void start(nn::Replica& replica, Trace& trace);
  bool is_on() const { return ops_ != nullptr; }

  // All gradients of a step are in the flat buffer: finishes the update before, and begins this
  // one, unless a gradient is infinite or NaN. The settings of the request must outlive it.
  UpdateResult update(TierMover& mover, const UpdateRequest& request);
  // Waits for the update under way, if there is one: then the next step uses its parameters.
  // Rethrows the error of a task.
  void finish();
  void settle() noexcept { thread_.settle(); }

 private:
  nn::Replica* replica_ = nullptr;
  Trace* trace_ = nullptr;
  std::unique_ptr<Ops> ops_;  // of the host, beside the replica's
  bool under_way_ = false;
  CommunicationThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
