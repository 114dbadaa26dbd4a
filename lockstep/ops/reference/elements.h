// A tensor on the CPU whose elements are read as doubles and rounded when they are stored.
#pragma once

#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/element.h"

namespace lockstep::ops::reference {

inline std::int64_t count(const Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.elements());
}

template <class T>
class Elements {
 public:
  explicit Elements(const Tensor& tensor)
      : data_(is_given(tensor) ? tensor.as<T>().data() : nullptr),
        columns_(tensor.shape().extents().empty() ? 1 : tensor.shape().extents().back()) {}

  bool given() const { return data_ != nullptr; }

  double operator[](std::int64_t index) const { return to_double(data_[index]); }
  double operator()(std::int64_t row, std::int64_t column) const {
    return to_double(data_[row * columns_ + column]);
  }

  void set(std::int64_t index, double value) const { data_[index] = rounded<T>(value); }
  void set(std::int64_t row, std::int64_t column, double value) const {
    data_[row * columns_ + column] = rounded<T>(value);
  }
  void add(std::int64_t index, double value) const { set(index, (*this)[index] + value); }
  void add(std::int64_t row, std::int64_t column, double value) const {
    set(row, column, (*this)(row, column) + value);
  }

 private:
  T* data_;
  std::int64_t columns_;
};

}  // namespace lockstep::ops::reference
