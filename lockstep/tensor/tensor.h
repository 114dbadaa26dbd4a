// A dense, contiguous view of elements that something else owns (a Buffer, an Arena, symmetric
// memory). Copying a Tensor copies the view. As with a pointer, the elements of a const Tensor may
// be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep {

class Tensor {
 public:
  Tensor() = default;  // f32, of shape [0]
  // Throws Error(kInvalidArgument) for a null or misaligned address, and if the number of bytes
  // overflows.
  Tensor(std::byte* data, DType dtype, const Shape& shape, Device device = {});

  std::byte* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  Device device() const { return device_; }
  std::size_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return elements() * size_of(dtype_); }

  // All elements, as<float>() or as<const float>(). Throws Error(kInvalidArgument) if they have
  // another type or are not on the CPU.
  template <class T>
  std::span<T> as() const {
    check_readable_as(dtype_of<std::remove_const_t<T>>);
    return {reinterpret_cast<T*>(data_), elements()};
  }

  // The same elements in another shape with the same number of elements.
  Tensor reshaped(const Shape& shape) const;
  // `count` entries of dimension 0 from `first` on; the dimension is kept, also for one entry or
  // none.
  Tensor slice(std::int64_t first, std::int64_t count) const;
  // One entry of dimension 0, without that dimension.
  Tensor row(std::int64_t index) const;

  // The bytes of such a tensor. Throws Error(kInvalidArgument) on overflow.
  static std::size_t bytes_of(DType dtype, const Shape& shape);

 private:
  void check_readable_as(DType wanted) const;
  std::size_t bytes_per_row() const;

  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_{0};
  Device device_;
};

// A view of a span on the CPU, in one dimension or in a shape with the same number of elements.
template <class T>
Tensor tensor_of(std::span<T> elements) {
  return {reinterpret_cast<std::byte*>(elements.data()), dtype_of<T>,
          Shape{static_cast<std::int64_t>(elements.size())}};
}
template <class T>
Tensor tensor_of(std::span<T> elements, const Shape& shape) {
  return tensor_of(elements).reshaped(shape);
}

// Complete on return or, in a task of a Stream, in order with its tasks.
void fill_zero(const Tensor& tensor);
// From any device to any; dtype and number of elements are the same, shapes may differ. The two may
// overlap. Throws Error(kInvalidArgument) before anything is written.
void copy(const Tensor& to, const Tensor& from);

}  // namespace lockstep
