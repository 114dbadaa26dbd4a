#include "lockstep/bench/train/products.h"

#include <algorithm>
#include <chrono>

#include "lockstep/base/counter_rng.h"
#include "lockstep/nn/parts/classifier.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::bench {
namespace {

std::int64_t to_signed(plan::Count count) { return static_cast<std::int64_t>(count); }

// Values as activations have them; zeros would be multiplied faster on some machines.
Buffer filled(DType dtype, const Shape& shape, Ops& ops) {
  Buffer values(Tensor::bytes_of(DType::kF32, shape));
  const Tensor wide = values.tensor(DType::kF32, shape);
  const auto elements = wide.as<float>();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] = uniform_at(1, 0, i % 4096) - 0.5f;
  }
  if (dtype == DType::kF32) return values;
  Buffer rounded(Tensor::bytes_of(dtype, shape));
  ops.run(ops::Cast{.from = wide, .to = rounded.tensor(dtype, shape)});
  ops.synchronize();
  return rounded;
}

template <class Call>
double seconds_of(Ops& ops, const Call& call) {
  const auto once = [&] {
    ops.run(call);
    ops.synchronize();
  };
  once();
  const auto begin = std::chrono::steady_clock::now();
  once();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double seconds_of_passes(const LinearShape& shape, Ops& ops) {
  const Shape x_shape{shape.rows, shape.in};
  const Shape y_shape{shape.rows, shape.out};
  const Shape weight_shape{shape.out, shape.in};
  const Buffer x_memory = filled(shape.dtype, x_shape, ops);
  const Buffer weight_memory = filled(shape.dtype, weight_shape, ops);
  const Buffer y_memory = filled(shape.dtype, y_shape, ops);
  const Buffer gradient_memory = filled(shape.gradient, weight_shape, ops);
  const Buffer scratch(ops.scratch(shape));
  ops.use_scratch(scratch.tensor(DType::kU8, {to_signed(scratch.bytes())}));
  const Tensor x = x_memory.tensor(shape.dtype, x_shape);
  const Tensor weight = weight_memory.tensor(shape.dtype, weight_shape);
  const Tensor y = y_memory.tensor(shape.dtype, y_shape);
  const Tensor dweight = gradient_memory.tensor(shape.gradient, weight_shape);
  const double seconds =
      seconds_of(ops, ops::LinearBackwardWeight{.dy = y, .x = x, .dweight = dweight}) +
      seconds_of(ops, ops::LinearBackwardInput{.dy = y, .weight = weight, .dx = x}) +
      seconds_of(ops, ops::Linear{.x = x, .weight = weight, .y = y});
  ops.use_scratch({});
  return seconds;
}

}  // namespace

std::vector<Product> products_of(const plan::ModelShape& shape, const nn::Setup& setup) {
  const std::int64_t rows = setup.shape.rows();
  const std::int64_t hidden = to_signed(shape.hidden);
  const std::int64_t wide = to_signed(shape.feed_forward);
  const std::int64_t vocabulary = to_signed(shape.vocabulary);
  const bool gated = shape.family == plan::Family::kLlama;
  const auto layers = static_cast<double>(shape.layers);
  std::vector<Product> products;
  const auto add = [&](std::int64_t some_rows, std::int64_t in, std::int64_t out, double count) {
    products.push_back({.shape = {.rows = some_rows,
                                  .in = in,
                                  .out = out,
                                  .dtype = setup.dtype,
                                  .gradient = setup.gradient},
                        .count = count});
  };
  add(rows, hidden, hidden + 2 * to_signed(shape.kv_width()), layers);
  add(rows, hidden, hidden, layers + (shape.head == plan::Head::kMaskedLanguage ? 1 : 0));
  add(rows, hidden, gated ? 2 * wide : wide, layers);
  add(rows, wide, hidden, layers);
  const std::int64_t chunk = nn::rows_per_chunk(rows, vocabulary, setup.dtype, nn::kLogitBytes);
  add(chunk, hidden, vocabulary, static_cast<double>(rows) / static_cast<double>(chunk));
  return products;
}

double measure_products(const std::vector<Product>& products, Ops& ops) {
  constexpr double kPasses = 3;
  double seconds = 0;
  double flops = 0;
  for (const Product& product : products) {
    const LinearShape& shape = product.shape;
    seconds += product.count * seconds_of_passes(shape, ops);
    flops += product.count * kPasses * 2 * static_cast<double>(shape.rows) *
             static_cast<double>(shape.in) * static_cast<double>(shape.out);
  }
  return flops / seconds;
}

}  // namespace lockstep::bench
