// Where a micro-batch lies for a device that does not read the host's memory.
//
// Every field has a fixed place, so that operations that were captured once read the batch that was
// uploaded last. On the CPU nothing is copied: the batch itself is read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/nn/batch.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::nn {

class DeviceBatch {
 public:
  // `features`: of a model that reads inputs and outputs; 0 for all others.
  static std::size_t bytes(const BatchShape& shape, std::int64_t features);

  DeviceBatch() = default;
  DeviceBatch(const BatchShape& shape, std::int64_t features, Device device);

  // f64 [2] beside it, for numbers that change from micro-batch to micro-batch.
  Tensor numbers() const;
  // The batch on the device of `ops`, in order with its operations; fields that are not given stay
  // so, and inputs and outputs where the model does not read them. Holds until the next call.
  Batch upload(Ops& ops, const Batch& batch) const;

 private:
  std::size_t stride_ = 0;  // bytes of a field
  bool reads_numbers_ = false;
  Buffer memory_;
};

}  // namespace lockstep::nn
