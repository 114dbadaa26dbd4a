#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/io/sharded_safetensors.h"
#include "lockstep/nn/hugging_face/hugging_face.h"
#include "lockstep/nn/hugging_face/names.h"

namespace lockstep::nn {
namespace {

// A tensor of Hugging Face: rows of one of our parameters.
struct Piece {
  const FlatParameter* parameter = nullptr;
  std::vector<RowRun> runs;
  std::int64_t rows = 0;
  bool transposed = false;
};

// How many of a parameter's rows go to each of `count` tensors.
std::vector<std::int64_t> split_rows(const plan::ModelShape& shape, const FlatParameter& parameter,
                                     std::size_t count) {
  const std::int64_t all = parameter.shape[0];
  if (count == 3) {
    const auto keys = static_cast<std::int64_t>(shape.kv_width());
    return {all - 2 * keys, keys, keys};
  }
  return std::vector<std::int64_t>(count, all / static_cast<std::int64_t>(count));
}

Shape shape_of_piece(const Piece& piece) {
  const Shape& ours = piece.parameter->shape;
  if (ours.dimensions() == 1) return {piece.rows};
  return piece.transposed ? Shape{ours[1], piece.rows} : Shape{piece.rows, ours[1]};
}

template <class To>
To rounded_to(float value) {
  if constexpr (std::is_same_v<To, BFloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<To, Half>) {
    return to_half(value);
  } else {
    return value;
  }
}

template <class To>
void convert(std::span<const float> rows, std::int64_t columns, bool transposed, std::span<To> to) {
  if (!transposed) {
    std::transform(rows.begin(), rows.end(), to.begin(), rounded_to<To>);
    return;
  }
  const auto width = static_cast<std::size_t>(columns);
  const std::size_t height = rows.size() / width;
  for (std::size_t i = 0; i < height; ++i) {
    for (std::size_t j = 0; j < width; ++j)
      to[j * height + i] = rounded_to<To>(rows[i * width + j]);
  }
}

void fill(const Piece& piece, const Tensor& parameter, const Tensor& to) {
  const std::int64_t columns = parameter.shape().dimensions() == 1 ? 1 : parameter.shape()[1];
  const auto elements = [columns](std::int64_t rows) {
    return static_cast<std::size_t>(rows * columns);
  };
  const auto into = [&]<class To>(std::span<To> target) {
    for (const RowRun& run : piece.runs) {
      convert(parameter.slice(run.ours, run.count).as<const float>(), columns, piece.transposed,
              target.subspan(elements(run.theirs), elements(run.count)));
    }
  };
  switch (to.dtype()) {
    case DType::kBF16:
      return into(to.as<BFloat16>());
    case DType::kF16:
      return into(to.as<Half>());
    default:
      return into(to.as<float>());
  }
}

// In the order of the model: that of the flat buffer is from its end to its beginning.
std::vector<const FlatParameter*> in_order(const FlatParameters& flat) {
  std::vector<const FlatParameter*> order;
  for (const FlatParameter& parameter : flat.all()) order.push_back(&parameter);
  std::stable_sort(order.begin(), order.end(), [](const FlatParameter* a, const FlatParameter* b) {
    return a->block < b->block;
  });
  return order;
}

}  // namespace

void write_hugging_face(const std::filesystem::path& folder, const plan::ModelShape& shape,
                        const FlatParameters& flat, const io::TensorSource& parameters,
                        const HuggingFaceFiles& files) {
  if (files.dtype != DType::kF32 && files.dtype != DType::kBF16 && files.dtype != DType::kF16) {
    fail(ErrorCode::kInvalidArgument, "a model is written in f32, bf16 or f16, not in {}",
         name(files.dtype));
  }
  std::vector<Piece> pieces;
  std::vector<io::PendingTensor> tensors;
  for (const FlatParameter* parameter : in_order(flat)) {
    const ForeignTensors theirs = hugging_face_tensors(shape.family, parameter->name);
    const auto rows = split_rows(shape, *parameter, theirs.names.size());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::vector<RowRun> runs =
          theirs.by_head ? runs_by_head(rows[i], static_cast<std::int64_t>(shape.heads))
                         : std::vector<RowRun>{{.ours = first, .theirs = 0, .count = rows[i]}};
      pieces.push_back({parameter, runs, rows[i], theirs.transposed});
      tensors.push_back({theirs.names[i], files.dtype, shape_of_piece(pieces.back())});
      first += rows[i];
    }
  }
  io::TensorSource::Loaded loaded;
  const FlatParameter* held = nullptr;
  io::write_sharded(folder, tensors, files.shard_bytes, [&](std::size_t i, const Tensor& to) {
    if (held != pieces[i].parameter) {
      held = pieces[i].parameter;
      loaded = parameters.load(held->name);
    }
    fill(pieces[i], loaded.tensor, to);
  });
}

}  // namespace lockstep::nn
