#include "lockstep/tensor/buffer.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

Buffer::Buffer(std::size_t bytes, Device device, MemoryBudget* budget)
    : bytes_(bytes), device_(device), claim_(budget, bytes) {
  DeviceMemory& memory = memory_of(device);
  if (bytes > 0) data_ = memory.allocate(bytes, bytes < kPage ? kAlignment : kPage);
}

Buffer::~Buffer() {
  if (data_ != nullptr) memory_of(device_).free(data_, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      claim_(std::move(other.claim_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  std::swap(device_, taken.device_);
  std::swap(claim_, taken.claim_);
  return *this;
}

Tensor Buffer::tensor(DType dtype, const Shape& shape, std::size_t offset) const {
  const std::size_t needed = Tensor::bytes_of(dtype, shape);
  if (offset > bytes_ || needed > bytes_ - offset) {
    fail(ErrorCode::kInvalidArgument,
         "a {} tensor of shape {} at byte {} needs {} bytes, but the buffer has {}", name(dtype),
         shape.text(), offset, needed, bytes_);
  }
  return {bytes_ == 0 ? nullptr : data_ + offset, dtype, shape, device_};
}

}  // namespace lockstep
