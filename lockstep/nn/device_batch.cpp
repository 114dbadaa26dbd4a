#include "lockstep/nn/device_batch.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr Tensor Batch::*kFields[] = {&Batch::tokens,   &Batch::targets, &Batch::types,
                                      &Batch::key_mask, &Batch::source,  &Batch::source_mask,
                                      &Batch::inputs,   &Batch::outputs};
constexpr std::size_t kFieldCount = std::size(kFields);

// All fields have the size of the largest one.
std::size_t field_bytes(const BatchShape& shape, std::int64_t features) {
  const std::int64_t most = std::max(
      {shape.tokens(), shape.source_tokens(), shape.batch * std::max<std::int64_t>(features, 1)});
  const std::size_t bytes = static_cast<std::size_t>(most) * sizeof(std::int32_t);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::size_t DeviceBatch::bytes(const BatchShape& shape, std::int64_t features) {
  return kFieldCount * field_bytes(shape, features) + kAlignment;
}

DeviceBatch::DeviceBatch(const BatchShape& shape, std::int64_t features, Device device)
    : stride_(field_bytes(shape, features)),
      reads_numbers_(features > 0),
      memory_(bytes(shape, features), device) {}

Tensor DeviceBatch::numbers() const {
  return memory_.tensor(DType::kF64, {2}, kFieldCount * stride_);
}

Batch DeviceBatch::upload(Ops& ops, const Batch& batch) const {
  Batch there = batch;
  ops.in_order([&] {
    for (std::size_t i = 0; i < kFieldCount; ++i) {
      const Tensor& from = batch.*kFields[i];
      const bool is_number = kFields[i] == &Batch::inputs || kFields[i] == &Batch::outputs;
      if (!ops::is_given(from) || from.device() == memory_.device()) continue;
      if (is_number && !reads_numbers_) continue;
      if (from.bytes() > stride_) {
        fail(ErrorCode::kInvalidArgument,
             "a field of a micro-batch has {} bytes, but only {} are allocated on {}", from.bytes(),
             stride_, name(memory_.device()));
      }
      const Tensor to = memory_.tensor(from.dtype(), from.shape(), i * stride_);
      copy(to, from);
      there.*kFields[i] = to;
    }
  });
  return there;
}

}  // namespace lockstep::nn
