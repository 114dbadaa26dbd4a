// A micro-batch in the memory of a device that does not read host memory.
//
// Every field has a fixed address, so that captured operations read the last uploaded batch. On the
// CPU nothing is copied.
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

  // f64 [2], for numbers that change with each micro-batch.
  Tensor numbers() const;
  // Copies the batch to the device of `ops`, in order with its operations; absent fields stay
  // absent. Valid until the next call.
  Batch upload(Ops& ops, const Batch& batch) const;

 private:
  std::size_t stride_ = 0;  // bytes of a field
  bool reads_numbers_ = false;
  Buffer memory_;
};

}  // namespace lockstep::nn
