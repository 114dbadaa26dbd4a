// A tensor's elements on the CPU: the tensor itself if it is there, else a copy. Work that is
// queued for the tensor must be finished (Ops::synchronize()).
//
//   const HostView view(losses);
//   for (float loss : view.as<float>()) ...
#pragma once

#include <span>

#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class HostView {
 public:
  explicit HostView(const Tensor& tensor) : tensor_(tensor) {
    if (tensor.device() == Device{} || tensor.elements() == 0) return;
    copy_ = Buffer(tensor.bytes());
    tensor_ = copy_.tensor(tensor.dtype(), tensor.shape());
    copy(tensor_, tensor);
  }

  const Tensor& tensor() const { return tensor_; }
  // Throws Error(kInvalidArgument) where the elements are of another type.
  template <class T>
  std::span<const T> as() const {
    return tensor_.as<const T>();
  }

 private:
  Buffer copy_;
  Tensor tensor_;
};

}  // namespace lockstep
