// A micro-batch in the memory of a device that does not read host memory.
//
// Every field has a fixed address, so that captured operations read the last uploaded batch. On the
// CPU nothing is copied.
//
// upload_ahead() begins while earlier micro-batches still compute: it copies from pinned memory, on
// a stream of its own, to a slot on the device. upload() of that batch then copies within the
// device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/nn/block.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::nn {

class DeviceBatch {
 public:
  // `features`: of a model that reads inputs and outputs; 0 for all others.
  static std::size_t bytes(const Setup& setup, std::int64_t features);

  DeviceBatch() = default;
  DeviceBatch(const Setup& setup, std::int64_t features, Device device);

  // f64 [2], for numbers that change with each micro-batch.
  Tensor numbers() const;
  // Copies the batch to the device of `ops`, in order with its operations; absent fields stay
  // absent. Valid until the next call.
  Batch upload(Ops& ops, const Batch& batch);
  // The batch may change afterwards: upload() uses only what is still the same. May wait until the
  // device has begun the micro-batch before the last.
  void upload_ahead(const Batch& batch);

 private:
  static constexpr std::size_t kSlots = 2;
  struct Slot {
    PinnedBuffer pinned;
    bool is_full = false;
    std::size_t fields = 0;  // of the batch
    Event arrived;           // on the device
    Event used;              // its content was copied on
  };

  bool takes(std::size_t field, const Batch& batch) const;
  std::size_t fields_bytes() const;
  Tensor slot_memory(std::size_t slot) const;
  // Whether the slot holds exactly this batch.
  bool holds(const Slot& slot, const Batch& batch) const;

  std::size_t stride_ = 0;  // bytes of a field
  bool reads_numbers_ = false;
  Buffer memory_;
  std::array<Slot, kSlots> slots_;
  std::size_t next_slot_ = 0;
  std::optional<Stream> copies_;
};

}  // namespace lockstep::nn
