#include "lockstep/tensor/shape.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string text_of(std::span<const std::int64_t> extents) {
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

std::size_t count(std::span<const std::int64_t> extents) {
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return 0;
  std::int64_t elements = 1;
  for (const std::int64_t extent : extents) {
    if (__builtin_mul_overflow(elements, extent, &elements)) {
      fail(ErrorCode::kInvalidArgument,
           "a tensor of shape {} would have more elements than can be counted (2^63 - 1)",
           text_of(extents));
    }
  }
  return static_cast<std::size_t>(elements);
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) {
  if (extents.size() > kMaxDimensions) {
    fail(ErrorCode::kInvalidArgument,
         "the shape {} has {} dimensions, but tensors have at most {}; fold some into one",
         text_of(extents), extents.size(), kMaxDimensions);
  }
  for (const std::int64_t extent : extents) {
    if (extent < 0) {
      fail(ErrorCode::kInvalidArgument, "the shape {} has an extent of {}; extents are 0 or more",
           text_of(extents), extent);
    }
  }
  elements_ = count(extents);
  dimensions_ = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

std::int64_t Shape::operator[](int dimension) const {
  if (dimension < 0 || dimension >= dimensions_) {
    fail(ErrorCode::kInvalidArgument,
         "dimension {} of the shape {} does not exist; it has {} dimensions, counted from 0",
         dimension, text(), dimensions_);
  }
  return extents_[static_cast<std::size_t>(dimension)];
}

std::string Shape::text() const { return text_of(extents()); }

}  // namespace lockstep
