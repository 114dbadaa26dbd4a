// Computes the update of a step on the host during the first forward of the next step. A block's
// forward waits until that block is updated, so the bits are those of an update that is awaited:
//
//   compute   | backward of step 1 | forward 0 | forward 1 | forward 2 | ...
//   host                | update 0 | update 1  | update 2  | ...
//
// Clipping needs the norm of all gradients, so the update begins after backward. What is left of it
// when the last block's forward begins is awaited there: gradients are zeroed, and backward
// changes them, only after all of them were read.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/offload/staged_update.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

class OverlappedUpdate {
 public:
  // Whether a replica can be updated this way.
  static bool serves(const nn::MemoryPlan& plan);

  // Both must outlive it.
  void start(nn::Replica& replica, Trace& trace);
  bool serves() const { return staged_.has_value(); }

  // Computes the norm and begins the update, unless a gradient is infinite or NaN. All gradients
  // are in the flat buffer, and operations have ended.
  UpdateResult update(TierMover& mover, const UpdateRequest& request);

  // Whether a forward has to wait for blocks.
  bool under_way() const { return awaited_ < blocks_; }
  // Lets operations and copies that are queued from now on use what the forward of this block, or
  // a gather that begins with it, reads. Rethrows the error of a task.
  void before_forward(std::size_t block);
  // Waits for the whole update. Rethrows the error of a task.
  void finish();
  // Waits for tasks and copies, whose memory may be freed then.
  void settle() noexcept {
    thread_.settle();
    if (staged_) staged_->settle();
  }

 private:
  nn::Replica* replica_ = nullptr;
  Trace* trace_ = nullptr;
  std::unique_ptr<Ops> ops_;  // of the host, beside the replica's
  std::optional<StagedUpdate> staged_;
  std::vector<std::size_t> needed_;  // blocks, from the first on, for each block's forward
  std::vector<Event> updated_;       // blocks: their parameters are where they belong
  std::size_t blocks_ = 0;
  std::size_t awaited_ = 0;     // blocks of this update
  bool is_complete_ = true;     // nothing is left to wait for
  CommunicationThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
