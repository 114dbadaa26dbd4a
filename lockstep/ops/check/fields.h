// Helpers for the checks of operations. A FieldCheck knows its operation, so that errors name it;
// nothing is allocated unless a check fails.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "lockstep/ops/check.h"

namespace lockstep::ops {

inline constexpr std::int64_t kAny = -1;  // an extent that may be anything

struct Field {
  std::string_view name;
  const Tensor& tensor;
};

using Extents = std::initializer_list<std::int64_t>;
using Types = std::initializer_list<DType>;

class FieldCheck {
 public:
  FieldCheck(std::string_view operation, const Accepts& accepts)
      : operation_(operation), accepts_(accepts) {}

  // That the field has these extents and one of these types and lies on the device; `because` is
  // the end of the sentence: "as x is".
  void expect(const Field& field, Extents extents, Types types,
              std::string_view because = {}) const;
  // The same for a tensor whose shape is another's.
  void expect(const Field& field, const Shape& shape, Types types,
              std::string_view because = {}) const;
  // The same where only the number of elements counts.
  void expect_elements(const Field& field, std::size_t elements, Types types,
                       std::string_view because = {}) const;
  // The same for a field in host memory, wherever the operation runs.
  void expect_on_host(const Field& field, Extents extents, Types types,
                      std::string_view because = {}) const;
  // That the field is of a compute type, of any shape; returns the type.
  DType compute_type(const Field& field) const;

  // That the field is given, or that it is not; `why` is the end of the sentence: "with a branch".
  void given(const Field& field, std::string_view why) const;
  void absent(const Field& field, std::string_view why) const;

  // That an output shares no byte with the others; the second allows it to be one of them.
  void apart(const Field& output, std::initializer_list<Field> others) const;
  void apart_or_same(const Field& output, std::initializer_list<Field> others) const;

  void dropout(const Dropout& dropout) const;
  // That `count` rows from `first` on are among `all`; 0: they are all, and `first` is 0.
  void shard(std::string_view field, std::int64_t first, std::int64_t count,
             std::int64_t all) const;
  // That the device has attention with such a window, and heads that turn in part.
  void window(std::string_view field, std::int64_t window, bool causal) const;
  void partial_rotary(std::string_view field, std::int64_t size, std::int64_t whole) const;
  // That a soft cap is a number, where there is one.
  void softcap(std::string_view field, double cap) const;
  // That heads lie in rows of a type, with so many columns together.
  void heads(std::string_view name, const Heads& heads, std::int64_t rows, std::int64_t columns,
             DType type) const;
  // That the columns from `first` on lie in the rows.
  void columns(std::string_view name, const Heads& heads, std::int64_t columns) const;
  // That a number that lies on the device is one f64 there.
  void scalar(std::string_view field, const Scalar& scalar) const;

  // That a number is as it should be; the sentence reads "norm: epsilon is -1, expected 0 or more".
  void number(bool right, std::string_view field, double value, std::string_view expected) const;

  std::string_view operation() const { return operation_; }

 private:
  void device_and_type(const Field& field, Types types, std::string_view because) const;
  [[noreturn]] void refuse(const Field& field, const std::string& shape, Types types,
                           std::string_view because) const;

  std::string_view operation_;
  const Accepts& accepts_;
};

// The type of the means, rstds and losses that belong to activations of a type.
constexpr DType statistic_type(DType compute) {
  return compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

// A product of extents; Error(kInvalidArgument) where it is larger than any tensor.
inline std::int64_t extents_product(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(Shape{a, b}.elements());
}

// Whether the two share a byte.
bool overlap(const Tensor& a, const Tensor& b);

}  // namespace lockstep::ops
