// Computes the update of a step on the host during the next step, which uses the parameters before
// it. This is the one-step delayed update of ZeRO-Offload.
//
//   compute   | step 1, parameters 0 | step 2, parameters 0 | step 3, parameters 1 | ...
//   host      |                      | update 1             | update 2             | ...
//
// The host reads the gradients of one step while those of the next arrive, and writes parameters
// beside those that are computed with: there are two buffers of each (nn/memory/memory_plan.h).
// Buffers on the host change places. Those on the device are copied, block by block, during the
// next forward:
//
//   down      |                      | gradients 1          | gradients 2
//   up        |                      |                      | parameters 1
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::parallel {

class DelayedUpdate {
 public:
  // Both must outlive it.
  void start(nn::Replica& replica, Trace& trace);
  bool is_on() const { return ops_ != nullptr; }

  // All gradients of a step are in the flat buffer: finishes the update before, and begins this
  // one, unless a gradient is infinite or NaN. The settings of the request must outlive it.
  UpdateResult update(TierMover& mover, const UpdateRequest& request);

  // Whether a forward has to wait for parameters that are copied to the device.
  bool sends_parameters() const { return awaited_ < came_.size(); }
  // Lets operations and copies that are queued from now on use what the forward of this block, or
  // a gather that begins with it, reads.
  void before_forward(std::size_t block);
  // Waits until all parameters are on the device.
  void await_parameters();

  // Whether gradients on the device are still copied to the host.
  bool reads_gradients() const { return reads_gradients_; }
  // Lets operations that are queued from now on change gradients.
  void let_gradients_change();

  // Waits for the update under way, if there is one: then the next step uses its parameters.
  // Rethrows the error of a task.
  void finish();
  // Waits for tasks and copies, whose memory may be freed then.
  void settle() noexcept;

 private:
  void take_gradients();
  void take_parameters();

  nn::Replica* replica_ = nullptr;
  Trace* trace_ = nullptr;
  std::unique_ptr<Ops> ops_;  // of the host, beside the replica's
  bool under_way_ = false;
  std::vector<std::size_t> needed_;  // blocks, from the first on, for each block's forward
  // Of buffers on the device, blocks: its gradients have left it, its parameters have come.
  std::vector<Event> left_;
  std::vector<Event> came_;
  std::size_t awaited_ = 0;  // blocks whose parameters operations may use
  bool reads_gradients_ = false;
  std::optional<Stream> down_;
  std::optional<Stream> up_;
  CommunicationThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
