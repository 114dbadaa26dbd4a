// A copy of the states on a GPU in pinned host memory, for saves.
//
// One update changes all states on a GPU at once, so it would wait until a save has written the
// last of them to the disk. With a snapshot it waits for the copy, which takes a small part of the
// time and runs beside the next forward and backward:
//
//   training   | forward    | backward     | update   | forward ...
//   the save   | copy             | write to the disk ...
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::train {

class StateSnapshot {
 public:
  // nullptr where no states are on a GPU. Throws Error(kSystem) if the host is short of memory: it
  // must have twice of what the copy takes.
  static std::unique_ptr<StateSnapshot> make(const nn::Replica& replica);

  // Whether it has all states, so that none of them is read in place.
  bool has_all() const { return has_all_; }
  // Copies the states, which must not change meanwhile. Called by one thread at a time.
  void take();
  // The copy of `elements`, a part of the states; `elements` itself where it is not on a GPU.
  Tensor of(const Tensor& elements) const;

 private:
  StateSnapshot(std::vector<Tensor> states, bool has_all);

  std::vector<Tensor> states_;  // on the GPU
  bool has_all_;
  PinnedBuffer copy_;  // of one after the other
  Stream stream_;
};

}  // namespace lockstep::train
