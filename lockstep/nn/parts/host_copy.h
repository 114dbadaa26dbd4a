// A tensor's elements on the host, to be changed there: the tensor itself where it lies on the CPU,
// else a copy. It holds the elements after Ops::synchronize().
#pragma once

#include <span>

#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::nn {

class HostCopy {
 public:
  HostCopy(Ops& ops, const Tensor& there) : there_(there), here_(there) {
    if (!is_apart()) return;
    memory_ = Buffer(there.bytes());
    here_ = memory_.tensor(there.dtype(), there.shape());
    ops.in_order([this] { copy(here_, there_); });
  }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  template <class T>
  std::span<T> as() const {
    return here_.as<T>();
  }
  // The copy must stay until Ops::synchronize().
  void write_back(Ops& ops) const {
    if (is_apart()) ops.in_order([this] { copy(there_, here_); });
  }

 private:
  bool is_apart() const { return there_.device() != Device{} && there_.elements() > 0; }

  Buffer memory_;
  Tensor there_, here_;
};

}  // namespace lockstep::nn
