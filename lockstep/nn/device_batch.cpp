#include "lockstep/nn/device_batch.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr Tensor Batch::*kFields[] = {&Batch::tokens,   &Batch::targets, &Batch::types,
                                      &Batch::key_mask, &Batch::source,  &Batch::source_mask,
                                      &Batch::inputs,   &Batch::outputs};
constexpr std::size_t kFieldCount = std::size(kFields);

// All fields have the size of the largest one. Masks are those of the tokens of all ranks of a
// context group.
std::size_t field_bytes(const Setup& setup, std::int64_t features) {
  const BatchShape& shape = setup.shape;
  const std::int64_t tokens = std::max(shape.tokens(), shape.source_tokens());
  const std::int64_t most = std::max(tokens, shape.batch * std::max<std::int64_t>(features, 1));
  const std::size_t bytes = std::max(static_cast<std::size_t>(most) * sizeof(std::int32_t),
                                     static_cast<std::size_t>(tokens * setup.context.size));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Tensor bytes_of(std::byte* data, std::size_t bytes, Device device) {
  return Tensor(data, DType::kU8, {static_cast<std::int64_t>(bytes)}, device);
}

}  // namespace

std::size_t DeviceBatch::bytes(const Setup& setup, std::int64_t features) {
  return (1 + kSlots) * kFieldCount * field_bytes(setup, features) + kAlignment;
}

DeviceBatch::DeviceBatch(const Setup& setup, std::int64_t features, Device device)
    : stride_(field_bytes(setup, features)),
      reads_numbers_(features > 0),
      memory_(bytes(setup, features), device),
      copies_(device) {
  // Not later: allocating pinned memory may wait for the work of all ranks that share the GPU.
  for (Slot& slot : slots_) slot.pinned = PinnedBuffer(fields_bytes());
}

std::size_t DeviceBatch::fields_bytes() const { return kFieldCount * stride_; }

Tensor DeviceBatch::numbers() const {
  return memory_.tensor(DType::kF64, {2}, (1 + kSlots) * fields_bytes());
}

Tensor DeviceBatch::slot_memory(std::size_t slot) const {
  return memory_.tensor(DType::kU8, {static_cast<std::int64_t>(fields_bytes())},
                        (1 + slot) * fields_bytes());
}

bool DeviceBatch::takes(std::size_t field, const Batch& batch) const {
  const Tensor& from = batch.*kFields[field];
  const bool is_number = kFields[field] == &Batch::inputs || kFields[field] == &Batch::outputs;
  if (!ops::is_given(from) || from.device() == memory_.device()) return false;
  if (is_number && !reads_numbers_) return false;
  if (from.bytes() > stride_) {
    fail(ErrorCode::kInvalidArgument,
         "a field of a micro-batch has {} bytes, but only {} are allocated on {}", from.bytes(),
         stride_, name(memory_.device()));
  }
  return true;
}

bool DeviceBatch::holds(const Slot& slot, const Batch& batch) const {
  if (!slot.is_full) return false;
  std::size_t fields = 0;
  for (std::size_t i = 0; i < kFieldCount; ++i) {
    if (!takes(i, batch)) continue;
    ++fields;
    const Tensor& from = batch.*kFields[i];
    if (std::memcmp(slot.pinned.data() + i * stride_, from.data(), from.bytes()) != 0) return false;
  }
  return fields == slot.fields;
}

void DeviceBatch::upload_ahead(const Batch& batch) {
  Slot& slot = slots_[next_slot_];
  slot.used.wait();
  slot.is_full = false;
  slot.fields = 0;
  std::size_t end = 0;  // of the last field
  for (std::size_t i = 0; i < kFieldCount; ++i) {
    if (!takes(i, batch)) continue;
    const Tensor& from = batch.*kFields[i];
    ++slot.fields;
    std::memcpy(slot.pinned.data() + i * stride_, from.data(), from.bytes());
    end = i * stride_ + from.bytes();
  }
  const Tensor to = slot_memory(next_slot_);
  copies_->run(
      [&] { copy(bytes_of(to.data(), end, to.device()), bytes_of(slot.pinned.data(), end, {})); });
  slot.arrived = copies_->record();
  slot.is_full = slot.fields > 0;
  next_slot_ = (next_slot_ + 1) % kSlots;
}

Batch DeviceBatch::upload(Ops& ops, const Batch& batch) {
  const auto ahead = std::ranges::find_if(slots_, [&](Slot& slot) { return holds(slot, batch); });
  const bool came_ahead = ahead != slots_.end();
  if (came_ahead) ops.wait(ahead->arrived);
  Batch there = batch;
  ops.in_order([&] {
    std::size_t end = 0;
    for (std::size_t i = 0; i < kFieldCount; ++i) {
      if (!takes(i, batch)) continue;
      const Tensor& from = batch.*kFields[i];
      const Tensor to = memory_.tensor(from.dtype(), from.shape(), i * stride_);
      if (!came_ahead) copy(to, from);
      end = i * stride_ + from.bytes();
      there.*kFields[i] = to;
    }
    if (!came_ahead) return;
    const Tensor from = slot_memory(static_cast<std::size_t>(ahead - slots_.begin()));
    copy(bytes_of(memory_.data(), end, memory_.device()),
         bytes_of(from.data(), end, from.device()));
  });
  if (came_ahead) {
    ahead->used = ops.record();
    ahead->is_full = false;
  }
  return there;
}

}  // namespace lockstep::nn
