#include "lockstep/nn/parts/declaration.h"

#include <algorithm>

#include "lockstep/nn/parts/row_pieces.h"

namespace lockstep::nn {

void Declaration::weight(std::string name, std::int64_t out, std::int64_t in, double stddev) {
  spec_.parameters.push_back({.name = std::move(name),
                              .shape = {out, in},
                              .initial = {.mean = 0, .stddev = stddev},
                              .decays = true,
                              .tied_to = {}});
}

void Declaration::table(std::string name, std::int64_t entries, std::int64_t width, double stddev,
                        std::int64_t rows) {
  weight(std::move(name), entries, width, stddev);
  spec_.parameters.back().sparse_rows = rows;
}

void Declaration::bias(std::string name, std::int64_t width, bool given) {
  spec_.parameters.push_back({.name = std::move(name),
                              .shape = {given ? width : 0},
                              .initial = {},
                              .decays = false,
                              .tied_to = {}});
}

void Declaration::gain(std::string name, std::int64_t width) {
  spec_.parameters.push_back({.name = std::move(name),
                              .shape = {width},
                              .initial = {.mean = 1, .stddev = 0},
                              .decays = false,
                              .tied_to = {}});
}

void Declaration::tied_weight(std::string name, std::int64_t out, std::int64_t in,
                              std::string owner) {
  weight(std::move(name), out, in, 0);
  spec_.parameters.back().tied_to = std::move(owner);
}

void Declaration::activation(std::string name, const Shape& shape, Life life) {
  spec_.tensors.push_back({std::move(name), setup_.dtype, shape, life});
}

void Declaration::statistic(std::string name, const Shape& shape, Life life) {
  spec_.tensors.push_back({std::move(name), DType::kF32, shape, life});
}

void Declaration::indices(std::string name, const Shape& shape, Life life) {
  spec_.tensors.push_back({std::move(name), DType::kI32, shape, life});
}

void Declaration::gradient(std::string name, const Shape& shape) {
  spec_.tensors.push_back({std::move(name), setup_.gradient, shape, Life::kBackward});
}

void Declaration::bytes(std::string name, const Shape& shape, Life life) {
  spec_.tensors.push_back({std::move(name), DType::kU8, shape, life});
}

void Declaration::linear(std::int64_t rows, std::int64_t in, std::int64_t out, bool again,
                         std::int64_t times) {
  const LinearShape shape = {
      .rows = rows, .in = in, .out = out, .dtype = setup_.dtype, .gradient = setup_.gradient};
  spec_.scratch = std::max(spec_.scratch, ops_.scratch(shape));
  spec_.weight_inputs +=
      static_cast<std::size_t>(times) * WeightGradients::bytes(rows, in, out, setup_.dtype);
  const double products =
      static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  product(2.0 * products * static_cast<double>(times), again);
}

void Declaration::linear_in_pieces(std::int64_t rows, std::int64_t most, std::int64_t in,
                                   std::int64_t out, bool again) {
  for_piece_sizes(most, [&](std::int64_t piece) {
    const LinearShape shape = {
        .rows = piece, .in = in, .out = out, .dtype = setup_.dtype, .gradient = setup_.gradient};
    spec_.scratch = std::max(spec_.scratch, ops_.scratch(shape));
  });
  const double products =
      static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  product(2.0 * products, again);
}

void Declaration::linear_part(std::int64_t rows, std::int64_t in, std::int64_t out,
                              std::int64_t of_outputs) {
  const LinearShape shape = {.rows = rows,
                             .in = in,
                             .out = out,
                             .dtype = setup_.dtype,
                             .gradient = setup_.gradient,
                             .of_outputs = of_outputs};
  spec_.scratch = std::max(spec_.scratch, ops_.scratch(shape));
}

void Declaration::sums(std::int64_t elements, DType dtype, const TensorGroup& group, bool again) {
  gathers(2 * elements, dtype, group, again);
}

void Declaration::gathers(std::int64_t elements, DType dtype, const TensorGroup& group,
                          bool again) {
  const auto bytes = static_cast<std::uint64_t>(elements) * size_of(dtype);
  const std::uint64_t times = again && setup_.recompute == Recompute::kFull ? 2 : 1;
  const auto ranks = static_cast<std::uint64_t>(group.size);
  spec_.tensor_bytes += times * bytes * (ranks - 1) / ranks;
}

void Declaration::sends_in_forward(std::uint64_t bytes) {
  spec_.context_bytes += setup_.recompute == Recompute::kFull ? 2 * bytes : bytes;
}

void Declaration::attention(const ops::AttentionShape& shape) {
  attention_scratch(shape);
  attention_flops(shape);
}

void Declaration::attention_scratch(const ops::AttentionShape& shape) {
  spec_.scratch = std::max(spec_.scratch, ops_.scratch(shape));
}

void Declaration::attention_flops(const ops::AttentionShape& shape) {
  // Scores and the weighted sum of values, the whole square counted as plan/arithmetic.h does, or
  // as many keys as a window has.
  const std::int64_t keys = shape.window > 0 ? std::min(shape.window, shape.keys) : shape.keys;
  const double scores = static_cast<double>(shape.batch * shape.heads) *
                        static_cast<double>(shape.queries) * static_cast<double>(keys);
  product(4.0 * scores * static_cast<double>(shape.head_size), true);
}

void Declaration::embedding(std::int64_t rows, std::int64_t width, std::int64_t entries) {
  spec_.scratch = std::max(spec_.scratch, ops_.embedding_scratch(rows, width, entries));
}

void Declaration::norm(std::int64_t rows, std::int64_t width) {
  spec_.scratch = std::max(spec_.scratch, ops_.norm_scratch(rows, width));
}

void Declaration::product(double flops, bool again) {
  spec_.forward_flops += flops;
  spec_.backward_flops += 2 * flops;
  if (again && setup_.recompute == Recompute::kFull) spec_.recompute_flops += flops;
}

}  // namespace lockstep::nn
