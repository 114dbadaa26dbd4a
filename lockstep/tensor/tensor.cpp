#include "lockstep/tensor/tensor.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep {
namespace {

std::string describe(const Tensor& tensor) {
  return fmt::format("{} {} on {}", name(tensor.dtype()), tensor.shape().text(),
                     name(tensor.device()));
}

}  // namespace

std::size_t Tensor::bytes_of(DType dtype, const Shape& shape) {
  if (shape.elements() > std::numeric_limits<std::ptrdiff_t>::max() / size_of(dtype)) {
    fail(ErrorCode::kInvalidArgument, "a {} tensor of shape {} is larger than any memory",
         name(dtype), shape.text());
  }
  return shape.elements() * size_of(dtype);
}

Tensor::Tensor(std::byte* data, DType dtype, const Shape& shape, Device device)
    : data_(data), dtype_(dtype), shape_(shape), device_(device) {
  if (bytes_of(dtype, shape) > 0 && data == nullptr) {
    fail(ErrorCode::kInvalidArgument, "a {} tensor of shape {} needs memory, but has no address",
         name(dtype), shape.text());
  }
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0) {
    fail(ErrorCode::kInvalidArgument,
         "a {} tensor of shape {} is misaligned: it starts {} bytes after a multiple of {}, the "
         "size of its elements",
         name(dtype), shape.text(), reinterpret_cast<std::uintptr_t>(data) % size_of(dtype),
         size_of(dtype));
  }
}

void Tensor::check_readable_as(DType wanted) const {
  if (dtype_ != wanted) {
    fail(ErrorCode::kInvalidArgument, "cannot read elements of {}: the tensor is {}", name(wanted),
         describe(*this));
  }
  if (device_.kind != DeviceKind::kCpu) {
    fail(ErrorCode::kInvalidArgument,
         "the CPU cannot read the tensor {}; copy it into one on the CPU first", describe(*this));
  }
}

Tensor Tensor::reshaped(const Shape& shape) const {
  if (shape.elements() != elements()) {
    fail(ErrorCode::kInvalidArgument,
         "a tensor of shape {} has {} elements and cannot take the shape {}, which has {}",
         shape_.text(), elements(), shape.text(), shape.elements());
  }
  return {data_, dtype_, shape, device_};
}

std::size_t Tensor::bytes_per_row() const {
  return Shape(shape_.extents().subspan(1)).elements() * size_of(dtype_);
}

Tensor Tensor::slice(std::int64_t first, std::int64_t count) const {
  if (shape_.dimensions() == 0) {
    fail(ErrorCode::kInvalidArgument,
         "a tensor of shape [] has no dimension to slice; reshape it to [1]");
  }
  const std::int64_t rows = shape_[0];
  if (first < 0 || count < 0 || first > rows || count > rows - first) {
    fail(ErrorCode::kInvalidArgument,
         "a slice of {} from {} on does not lie in dimension 0 of the shape {}", count, first,
         shape_.text());
  }
  std::array<std::int64_t, Shape::kMaxDimensions> extents{};
  std::copy(shape_.extents().begin(), shape_.extents().end(), extents.begin());
  extents[0] = count;
  const Shape shape{std::span<const std::int64_t>(extents.data(), shape_.extents().size())};
  // Nothing is added to the null address of a tensor without elements.
  const std::size_t offset =
      elements() == 0 ? 0 : static_cast<std::size_t>(first) * bytes_per_row();
  return {offset == 0 ? data_ : data_ + offset, dtype_, shape, device_};
}

Tensor Tensor::row(std::int64_t index) const {
  const Tensor one = slice(index, 1);
  return one.reshaped(Shape(one.shape().extents().subspan(1)));
}

void fill_zero(const Tensor& tensor) {
  DeviceMemory& memory = memory_of(tensor.device());
  if (tensor.bytes() > 0) memory.fill_zero(tensor.data(), tensor.bytes());
}

void copy(const Tensor& to, const Tensor& from) {
  if (to.dtype() != from.dtype() || to.elements() != from.elements()) {
    fail(ErrorCode::kInvalidArgument,
         "a copy needs the same type and number of elements on both sides: from {} ({} elements) "
         "to {} ({})",
         describe(from), from.elements(), describe(to), to.elements());
  }
  const Device acting = from.device().kind == DeviceKind::kCpu ? to.device() : from.device();
  DeviceMemory& memory = memory_of(acting);
  if (to.bytes() > 0) memory.copy(to.data(), from.data(), to.bytes());
}

}  // namespace lockstep
