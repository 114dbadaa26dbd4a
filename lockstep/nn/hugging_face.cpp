#include "lockstep/nn/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/nn/hugging_face_names.h"

namespace lockstep::nn {
namespace {

using plan::Family;

// The name under which the file has a tensor.
std::string name_in(const io::TensorSource& file, Family family, std::string_view prefix,
                    std::string_view name) {
  for (const std::string& other : names_in_files(family, name)) {
    std::string full = fmt::format("{}{}", prefix, other);
    if (file.find(full) != nullptr) return full;
  }
  return fmt::format("{}{}", prefix, name);
}

std::vector<float> floats_of(const io::TensorSource& file, const std::string& name) {
  const auto loaded = file.load(name);
  std::vector<float> values(loaded.tensor.elements());
  const auto convert = [&](auto elements) {
    std::transform(elements.begin(), elements.end(), values.begin(), [](auto x) {
      if constexpr (std::is_same_v<decltype(x), float>) {
        return x;
      } else {
        return to_float(x);
      }
    });
  };
  switch (loaded.tensor.dtype()) {
    case DType::kF32:
      convert(loaded.tensor.as<float>());
      break;
    case DType::kBF16:
      convert(loaded.tensor.as<BFloat16>());
      break;
    case DType::kF16:
      convert(loaded.tensor.as<Half>());
      break;
    default:
      fail(ErrorCode::kInvalidArgument, "'{}' is of type {}; parameters are f32, bf16 or f16", name,
           lockstep::name(loaded.tensor.dtype()));
  }
  return values;
}

std::vector<float> transposed(std::span<const float> values, const Shape& shape) {
  const auto rows = static_cast<std::size_t>(shape[0]);
  const auto columns = static_cast<std::size_t>(shape[1]);
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) result[j * rows + i] = values[i * columns + j];
  }
  return result;
}

// The tensors of the file that make one parameter, found to fit.
struct Parts {
  std::vector<std::string> names;
  bool transposed = false;
};

Parts parts_of(const io::TensorSource& file, Family family, std::string_view prefix,
               const FlatParameter& parameter) {
  const ForeignTensors source = hugging_face_tensors(family, parameter.name);
  const Shape& ours = parameter.shape;
  Parts parts{.names = {}, .transposed = source.transposed};
  std::vector<std::string> shapes;
  std::int64_t rows = 0;
  bool fits = true;
  for (const std::string& name : source.names) {
    parts.names.push_back(name_in(file, family, prefix, name));
    const Shape& shape = file.at(parts.names.back()).shape;
    shapes.push_back(fmt::format("'{}' of {}", parts.names.back(), shape.text()));
    fits = fits && shape.dimensions() == ours.dimensions() &&
           (ours.dimensions() == 1 || shape[source.transposed ? 0 : 1] == ours[1]);
    if (fits) rows += shape[source.transposed ? 1 : 0];
  }
  if (!fits || rows != ours[0]) {
    fail(ErrorCode::kInvalidArgument,
         "{} in {} cannot be the model's '{}' of {}{}; are the sizes of the model those of the "
         "file?",
         fmt::join(shapes, ", "), file.text(), parameter.name, ours.text(),
         source.transposed ? ", transposed" : "");
  }
  return parts;
}

// The values of one parameter, put together.
std::vector<float> gather(const io::TensorSource& file, const Parts& parts) {
  std::vector<float> values;
  for (const std::string& name : parts.names) {
    std::vector<float> part = floats_of(file, name);
    if (parts.transposed) part = transposed(part, file.at(name).shape);
    if (values.empty()) {
      values = std::move(part);
    } else {
      values.insert(values.end(), part.begin(), part.end());
    }
  }
  return values;
}

}  // namespace

void check_is_model(const io::TensorSource& file, Family family, const FlatParameters& flat) {
  std::set<std::string> known;
  bool tied = true;
  for (const FlatParameter& parameter : flat.all()) {
    if (parameter.name == "head.logits.weight") tied = false;
    for (std::string& name : parts_of(file, family, "", parameter).names) {
      known.insert(std::move(name));
    }
  }
  std::vector<std::string_view> unknown;
  for (const std::string_view name : file.names()) {
    if (known.contains(std::string(name)) || holds_no_parameter(family, name, tied)) continue;
    unknown.push_back(name);
  }
  if (unknown.empty()) return;
  constexpr std::size_t kShown = 3;
  const std::size_t shown = std::min(unknown.size(), kShown);
  fail(ErrorCode::kUnsupported,
       "{} has {} that a model of family {} has no place for, and would compute something else "
       "without: {}{}",
       file.text(), counted(unknown.size(), "tensor"), plan::name(family),
       fmt::join(unknown.begin(), unknown.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
       unknown.size() > shown ? ", ..." : "");
}

void read_hugging_face(const io::TensorSource& file, Family family, const FlatParameters& flat,
                       const Tensor& row, std::string_view prefix) {
  fill_zero(row);
  for (const FlatParameter& parameter : flat.all()) {
    std::vector<float> values = gather(file, parts_of(file, family, prefix, parameter));
    copy(FlatParameters::view(row, parameter), tensor_of(std::span(values), parameter.shape));
  }
}

void load_hugging_face(const io::TensorSource& file, Family family, Replica& replica,
                       std::string_view prefix) {
  read_hugging_face(file, family, replica.flat(), replica.states().master, prefix);
  replica.round_parameters();
}

}  // namespace lockstep::nn
