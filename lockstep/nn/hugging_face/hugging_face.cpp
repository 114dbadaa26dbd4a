#include "lockstep/nn/hugging_face/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/nn/hugging_face/names.h"
#include "lockstep/nn/replica/state_stream.h"

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

// `count` elements of a tensor of the file, from `first` on.
std::vector<float> floats_of(const io::TensorSource& file, const std::string& name,
                             std::size_t first, std::size_t count) {
  const DType dtype = file.at(name).dtype.value_or(DType::kU8);
  const Buffer memory(count * size_of(dtype));
  const Tensor part = memory.tensor(dtype, {static_cast<std::int64_t>(count)});
  file.read_part(name, first, part);
  std::vector<float> values(count);
  const auto convert = [&](auto elements) {
    std::transform(elements.begin(), elements.end(), values.begin(), [](auto x) {
      if constexpr (std::is_same_v<decltype(x), float>) {
        return x;
      } else {
        return to_float(x);
      }
    });
  };
  switch (dtype) {
    case DType::kF32:
      convert(part.as<float>());
      break;
    case DType::kBF16:
      convert(part.as<BFloat16>());
      break;
    case DType::kF16:
      convert(part.as<Half>());
      break;
    default:
      fail(ErrorCode::kInvalidArgument, "'{}' is of type {}; parameters are f32, bf16 or f16", name,
           lockstep::name(dtype));
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

// Elements of a parameter that follow each other in a tensor of the file, too.
struct Segment {
  std::string name;
  std::size_t first = 0;  // in the tensor
  std::size_t count = 0;
};

// The tensors of the file that make one logical parameter, found to fit: their segments, one behind
// the other.
struct Parts {
  std::vector<std::string> names;
  std::vector<Segment> segments;
  bool transposed = false;
};

Parts parts_of(const io::TensorSource& file, const plan::ModelShape& model, std::string_view prefix,
               const FlatParameter& parameter) {
  const ForeignTensors source = hugging_face_tensors(model.family, parameter.name);
  const Shape ours = logical_shape(parameter.shape, parameter.shard);
  Parts parts{.names = {}, .segments = {}, .transposed = source.transposed};
  std::vector<std::string> shapes;
  std::int64_t rows = 0;
  bool fits = true;
  for (const std::string& name : source.names) {
    parts.names.push_back(name_in(file, model.family, prefix, name));
    const Shape& shape = file.at(parts.names.back()).shape;
    shapes.push_back(fmt::format("'{}' of {}", parts.names.back(), shape.text()));
    fits = fits && shape.dimensions() == ours.dimensions() &&
           (ours.dimensions() == 1 || shape[source.transposed ? 0 : 1] == ours[1]);
    if (fits) rows += shape[source.transposed ? 1 : 0];
    parts.segments.push_back({parts.names.back(), 0, shape.elements()});
  }
  if (!fits || rows != ours[0]) {
    fail(ErrorCode::kInvalidArgument,
         "{} in {} does not match the model's '{}' of {}{}; check that the model's sizes are those "
         "of the file",
         fmt::join(shapes, ", "), file.text(), parameter.name, ours.text(),
         source.transposed ? ", transposed" : "");
  }
  if (!source.by_head) return parts;
  const std::size_t columns = ours.elements() / static_cast<std::size_t>(rows);
  parts.segments.clear();
  for (const RowRun& run : runs_by_head(rows, static_cast<std::int64_t>(model.heads))) {
    parts.segments.push_back({parts.names.front(), static_cast<std::size_t>(run.theirs) * columns,
                              static_cast<std::size_t>(run.count) * columns});
  }
  return parts;
}

// Reads elements of logical parameters. The last transposed tensor stays in memory: a shard is read
// run by run, and each run needs it.
class PartsReader {
 public:
  explicit PartsReader(const io::TensorSource& file) : file_(file) {}

  // Fills `to` with the elements of a parameter from `first` on.
  void fill(const Parts& parts, std::size_t first, const Tensor& to) {
    const Tensor elements = to.reshaped({static_cast<std::int64_t>(to.elements())});
    const std::size_t end = first + to.elements();
    std::size_t at = 0;  // where a segment begins in the parameter
    for (const Segment& segment : parts.segments) {
      const std::size_t from = std::max(first, at);
      const std::size_t stop = std::min(end, at + segment.count);
      if (from < stop) {
        std::vector<float> read;
        std::span<float> wanted;
        if (parts.transposed) {
          wanted = transposed_tensor(segment).subspan(from - at, stop - from);
        } else {
          read = floats_of(file_, segment.name, segment.first + (from - at), stop - from);
          wanted = read;
        }
        copy(elements.slice(static_cast<std::int64_t>(from - first),
                            static_cast<std::int64_t>(stop - from)),
             tensor_of(wanted));
      }
      at += segment.count;
    }
  }

 private:
  std::span<float> transposed_tensor(const Segment& segment) {
    if (transposed_name_ != segment.name) {
      transposed_ = transposed(floats_of(file_, segment.name, 0, segment.count),
                               file_.at(segment.name).shape);
      transposed_name_ = segment.name;
    }
    return transposed_;
  }

  const io::TensorSource& file_;
  std::string transposed_name_;
  std::vector<float> transposed_;
};

}  // namespace

void check_is_model(const io::TensorSource& file, const plan::ModelShape& shape,
                    const FlatParameters& flat) {
  std::set<std::string> known;
  bool tied = true;
  for (const FlatParameter& parameter : flat.all()) {
    if (parameter.name == "head.logits.weight") tied = false;
    for (std::string& name : parts_of(file, shape, "", parameter).names) {
      known.insert(std::move(name));
    }
  }
  std::vector<std::string_view> unknown;
  for (const std::string_view name : file.names()) {
    if (known.contains(std::string(name)) || holds_no_parameter(shape.family, name, tied)) continue;
    unknown.push_back(name);
  }
  if (unknown.empty()) return;
  constexpr std::size_t kShown = 3;
  const std::size_t shown = std::min(unknown.size(), kShown);
  fail(ErrorCode::kUnsupported,
       "{} has {} that a model of family {} does not have, so that the result would differ: {}{}",
       file.text(), counted(unknown.size(), "tensor"), plan::name(shape.family),
       fmt::join(unknown.begin(), unknown.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
       unknown.size() > shown ? ", ..." : "");
}

void read_hugging_face(const io::TensorSource& file, const plan::ModelShape& shape,
                       const FlatParameters& flat, const Tensor& buffer, std::string_view prefix) {
  fill_zero(buffer);
  PartsReader reader(file);
  for (const FlatParameter& parameter : flat.all()) {
    reader.fill(parts_of(file, shape, prefix, parameter), 0,
                FlatParameters::view(buffer, parameter));
  }
}

void load_hugging_face(const io::TensorSource& file, const plan::ModelShape& shape,
                       Replica& replica, std::string_view prefix) {
  // All of it, whatever this worker holds.
  for (const FlatParameter& parameter : replica.flat().all()) {
    parts_of(file, shape, prefix, parameter);
  }
  PartsReader reader(file);
  StateStream stream(replica, StateAccess::kWrite, &States::master);
  while (stream.next()) {
    const States states = stream.states();
    fill_zero(states.master);
    for_parameters_in(replica.flat(), stream.block(), stream.range(),
                      [&](const FlatParameter& parameter, std::size_t first, FlatRange within) {
                        const Parts parts = parts_of(file, shape, prefix, parameter);
                        const Tensor to = states.slice(within).master;
                        for_runs(parameter.shape, parameter.shard, first, within.elements,
                                 [&](const ShardRun& run) {
                                   reader.fill(
                                       parts, run.logical,
                                       to.slice(static_cast<std::int64_t>(run.local - first),
                                                static_cast<std::int64_t>(run.elements)));
                                 });
                      });
  }
  replica.round_parameters();
}

}  // namespace lockstep::nn
