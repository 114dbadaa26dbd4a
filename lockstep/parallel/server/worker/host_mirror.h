// The host's copies of what a worker on a GPU exchanges with parameter servers, page-locked.
//
//   GPU       backward 2 | backward 1        | backward 0        | ... | forward 0    | forward 1
//   bus                  | gradients 2 down  | gradients 1 down  |  parameters 0 up | parameters 1
//   servers                                  | push 2            | push 1 ...
//
// Gradients cross the bus behind backward, parameters ahead of forward, on a stream for each
// direction. One thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::parallel {

class HostMirror {
 public:
  // Whether a worker needs one. / Its bytes on the host.
  static bool serves(const nn::MemoryPlan& plan) { return plan.device != Device{}; }
  static std::size_t bytes(const nn::MemoryPlan& plan);

  // With the replica's parameters, which must outlive it.
  explicit HostMirror(nn::Replica& replica);

  // The replica's states, those that are exchanged on the host. In f32 the parameters are the
  // master copy.
  const nn::States& states() const { return states_; }

  // Queues a copy of gradients behind the operations that are queued. Their memory may change, and
  // the host's be read, when the event has come.
  Event send_gradients(nn::FlatRange range);
  // The parameters here have changed, or are about to; those on the GPU are stale.
  void forget() { current_ = 0; }
  // Operations that are queued from now on see the parameters of all blocks up to this one, which
  // have come from the servers.
  void bring(std::size_t block);
  // All parameters of the GPU are what they shall be.
  void keep() { current_ = replica_.flat().blocks(); }

 private:
  nn::Replica& replica_;
  PinnedBuffer gradients_;
  PinnedBuffer parameters_;
  nn::States states_;
  std::size_t current_ = 0;  // blocks, from the first on, whose parameters the GPU has
  Stream down_;
  Stream up_;
};

}  // namespace lockstep::parallel
