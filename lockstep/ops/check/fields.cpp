#include "lockstep/ops/check/fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

std::string describe(const Tensor& tensor) {
  return fmt::format("{} {}", tensor.shape().text(), name(tensor.dtype()));
}

std::string extents_text(Extents extents) {
  std::vector<std::string> words;
  for (const std::int64_t extent : extents) {
    words.push_back(extent == kAny ? "*" : std::to_string(extent));
  }
  return fmt::format("[{}]", fmt::join(words, ", "));
}

std::string types_text(Types types) {
  std::string text;
  std::size_t left = types.size();
  for (const DType type : types) {
    text += name(type);
    --left;
    if (left > 0) text += left == 1 ? " or " : ", ";
  }
  return text;
}

bool matches(const Shape& shape, Extents extents) {
  const auto have = shape.extents();
  return std::equal(
      have.begin(), have.end(), extents.begin(), extents.end(),
      [](std::int64_t is, std::int64_t wanted) { return wanted == kAny || is == wanted; });
}

bool contains(Types types, DType type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.bytes() == b.bytes();
}

}  // namespace

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.bytes() == 0 || b.bytes() == 0 || a.device() != b.device()) return false;
  const std::less<const std::byte*> before;
  return before(a.data(), b.data() + b.bytes()) && before(b.data(), a.data() + a.bytes());
}

void FieldCheck::refuse(const Field& field, const std::string& shape, Types types,
                        std::string_view because) const {
  fail(ErrorCode::kInvalidArgument, "{}: {} is {}, expected {} {}{}{}", operation_, field.name,
       describe(field.tensor), shape, types_text(types), because.empty() ? "" : " ", because);
}

void FieldCheck::device_and_type(const Field& field, Types types, std::string_view because) const {
  if (field.tensor.device() != accepts_.device) {
    fail(ErrorCode::kInvalidArgument, "{}: {} lies on {}, expected {}, where the operation runs",
         operation_, field.name, name(field.tensor.device()), name(accepts_.device));
  }
  if (!contains(types, field.tensor.dtype())) {
    refuse(field, field.tensor.shape().text(), types, because);
  }
}

void FieldCheck::expect(const Field& field, Extents extents, Types types,
                        std::string_view because) const {
  if (!matches(field.tensor.shape(), extents)) {
    refuse(field, extents_text(extents), types, because);
  }
  device_and_type(field, types, because);
}

void FieldCheck::expect(const Field& field, const Shape& shape, Types types,
                        std::string_view because) const {
  if (field.tensor.shape() != shape) refuse(field, shape.text(), types, because);
  device_and_type(field, types, because);
}

void FieldCheck::expect_elements(const Field& field, std::size_t elements, Types types,
                                 std::string_view because) const {
  if (field.tensor.elements() != elements) {
    refuse(field, fmt::format("{} elements of", elements), types, because);
  }
  device_and_type(field, types, because);
}

void FieldCheck::expect_on_host(const Field& field, Extents extents, Types types,
                                std::string_view because) const {
  if (!matches(field.tensor.shape(), extents)) {
    refuse(field, extents_text(extents), types, because);
  }
  if (field.tensor.device() != Device{}) {
    fail(ErrorCode::kInvalidArgument, "{}: {} lies on {}, expected it in host memory", operation_,
         field.name, name(field.tensor.device()));
  }
  if (!contains(types, field.tensor.dtype())) {
    refuse(field, field.tensor.shape().text(), types, because);
  }
}

DType FieldCheck::compute_type(const Field& field) const {
  if (accepts_.f64) {
    device_and_type(field, {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}, {});
  } else {
    device_and_type(field, {DType::kF32, DType::kBF16, DType::kF16}, {});
  }
  return field.tensor.dtype();
}

void FieldCheck::given(const Field& field, std::string_view why) const {
  if (is_given(field.tensor)) return;
  fail(ErrorCode::kInvalidArgument, "{}: {} is not given, but is needed {}", operation_, field.name,
       why);
}

void FieldCheck::absent(const Field& field, std::string_view why) const {
  if (!is_given(field.tensor)) return;
  fail(ErrorCode::kInvalidArgument, "{}: {} is {}, expected none {}", operation_, field.name,
       describe(field.tensor), why);
}

void FieldCheck::apart(const Field& output, std::initializer_list<Field> others) const {
  for (const Field& other : others) {
    if (!overlap(output.tensor, other.tensor)) continue;
    fail(ErrorCode::kInvalidArgument, "{}: {} and {} share memory, expected them apart", operation_,
         output.name, other.name);
  }
}

void FieldCheck::apart_or_same(const Field& output, std::initializer_list<Field> others) const {
  for (const Field& other : others) {
    if (!overlap(output.tensor, other.tensor) || same_bytes(output.tensor, other.tensor)) continue;
    fail(ErrorCode::kInvalidArgument,
         "{}: {} and {} share a part of their memory, expected all of it or none", operation_,
         output.name, other.name);
  }
}

void FieldCheck::dropout(const Dropout& dropout) const {
  number(dropout.probability >= 0 && dropout.probability < 1, "dropout.probability",
         dropout.probability, "0 or more and below 1");
  number(dropout.first % 4 == 0, "dropout.first", static_cast<double>(dropout.first),
         "a multiple of 4");
  scalar("dropout.step", dropout.step);
}

void FieldCheck::shard(std::string_view field, std::int64_t first, std::int64_t count,
                       std::int64_t all) const {
  if (all == 0) return number(first == 0, field, static_cast<double>(first), "0 without a shard");
  number(first >= 0 && first <= all - count, field, static_cast<double>(first),
         fmt::format("0 to {}, for {} of {}", all - count, count, all));
}

void FieldCheck::window(std::string_view field, std::int64_t window, bool causal) const {
  number(window >= 0, field, static_cast<double>(window), "0 or more");
  if (window == 0) return;
  number(causal, field, static_cast<double>(window), "0 where attention is not causal");
}

void FieldCheck::partial_rotary(std::string_view field, std::int64_t size,
                                std::int64_t whole) const {
  if (size == whole) return;
  number(size >= 2 && size % 2 == 0 && size <= whole, field, static_cast<double>(size),
         fmt::format("an even number from 2 to {}", whole));
}

void FieldCheck::softcap(std::string_view field, double cap) const {
  number(cap >= 0 && std::isfinite(cap), field, cap, "0 or more, and finite");
}

void FieldCheck::columns(std::string_view name, const Heads& heads, std::int64_t columns) const {
  const std::int64_t width = heads.rows.shape()[1];
  if (heads.first >= 0 && columns <= width && heads.first <= width - columns) return;
  fail(ErrorCode::kInvalidArgument,
       "{}: the {} columns of {} begin at {}, expected them to lie in its rows, which have {}",
       operation_, columns, name, heads.first, width);
}

void FieldCheck::heads(std::string_view name, const Heads& heads, std::int64_t rows,
                       std::int64_t columns, DType type) const {
  expect({name, heads.rows}, {rows, kAny}, {type}, "as the shape says");
  this->columns(name, heads, columns);
}

void FieldCheck::scalar(std::string_view field, const Scalar& scalar) const {
  if (is_given(scalar.at)) expect({field, scalar.at}, {1}, {DType::kF64});
}

void FieldCheck::number(bool right, std::string_view field, double value,
                        std::string_view expected) const {
  if (right) return;
  fail(ErrorCode::kInvalidArgument, "{}: {} is {}, expected {}", operation_, field, value,
       expected);
}

void check_indices(const Tensor& indices, std::int64_t limit, std::string_view what,
                   bool allow_no_target) {
  const auto elements = indices.as<const std::int32_t>();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::int32_t index = elements[i];
    if (index >= 0 && index < limit) continue;
    if (allow_no_target && index == kNoTarget) continue;
    fail_index(what, static_cast<std::int64_t>(i), index, limit, allow_no_target);
  }
}

void fail_index(std::string_view what, std::int64_t position, std::int32_t index,
                std::int64_t limit, bool allow_no_target) {
  fail(ErrorCode::kInvalidArgument, "{}[{}] is {}, expected 0 to {}{}", what, position, index,
       limit - 1, allow_no_target ? fmt::format(", or {} for none", kNoTarget) : "");
}

}  // namespace lockstep::ops
