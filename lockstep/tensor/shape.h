// The extents of a dense tensor, slowest dimension first, kept inside the object.
//
// The constructor throws Error(kInvalidArgument) for negative extents, more than six dimensions,
// and more than 2^63 - 1 elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace lockstep {

class Shape {
 public:
  static constexpr int kMaxDimensions = 6;

  Shape() = default;  // no dimensions: one element
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  int dimensions() const { return dimensions_; }
  std::size_t elements() const { return elements_; }

  // The extent of a dimension; Error(kInvalidArgument) where there is no such dimension.
  std::int64_t operator[](int dimension) const;
  std::span<const std::int64_t> extents() const {
    return {extents_.data(), static_cast<std::size_t>(dimensions_)};
  }

  std::string text() const;  // "[4, 1024, 768]"

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxDimensions> extents_{};  // zero after the last dimension
  int dimensions_ = 0;
  std::size_t elements_ = 1;
};

}  // namespace lockstep
