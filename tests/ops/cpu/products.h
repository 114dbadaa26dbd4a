// Matrix products to test with, and their right results.
#pragma once

#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "lockstep/ops/cpu/gemm/product.h"
#include "lockstep/ops/element.h"

namespace lockstep::cpu::gemm {

inline std::vector<std::byte> elements_of(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  ops::with_float_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T element = ops::rounded<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
  return bytes;
}

inline std::vector<double> values_of(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / size_of(dtype));
  ops::with_float_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T element;
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = ops::to_double(element);
    }
  });
  return values;
}

// Integers so small that all sums are exact in f32: whatever the order, there is one right result.
inline std::vector<double> small_integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<double>(random() % 7) - 3;
  return values;
}

inline std::string text(const ProductShape& shape) {
  return std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " +
         std::to_string(shape.k) + " " + std::string(name(shape.dtype)) + " to " +
         std::string(name(shape.output)) + (shape.a_transposed ? " a^T" : "") +
         (shape.b_transposed ? " b^T" : "");
}

struct ProductInputs {
  std::vector<double> a, b;  // as they lie
  std::vector<double> bias, added, factor;
};

inline ProductInputs integer_inputs(const ProductShape& shape) {
  return {.a = small_integers(shape.m * shape.k, 1),
          .b = small_integers(shape.k * shape.n, 2),
          .bias = small_integers(shape.n, 3),
          .added = small_integers(shape.m * shape.n, 4),
          .factor = small_integers(shape.m * shape.n, 5)};
}

// What `run` makes of a product: the output, which holds `added` before, and the derivative behind
// it where there is an activation. run(product, scratch) gets as much scratch memory as it is said,
// on the heap, for the address sanitizer to see what lies behind.
template <class Run>
std::vector<std::byte> output_of(const ProductShape& shape, const ProductInputs& inputs,
                                 std::size_t scratch_bytes, Run&& run,
                                 std::optional<ops::Activation> activation = std::nullopt) {
  const auto a = elements_of(shape.dtype, inputs.a);
  const auto b = elements_of(shape.dtype, inputs.b);
  const auto bias = elements_of(shape.output, inputs.bias);
  const auto factor = elements_of(shape.output, inputs.factor);
  auto output = elements_of(shape.output, inputs.added);
  std::vector<std::byte> derivative(activation ? output.size() : 0);
  std::vector<std::byte> scratch(scratch_bytes);
  run(Product{.shape = shape,
              .a = a.data(),
              .b = b.data(),
              .output = output.data(),
              .finish = {.bias = shape.bias ? bias.data() : nullptr,
                         .added = shape.added ? output.data() : nullptr,
                         .factor = shape.factor ? factor.data() : nullptr,
                         .activation = activation,
                         .derivative = activation ? derivative.data() : nullptr}},
      scratch.data());
  output.insert(output.end(), derivative.begin(), derivative.end());
  return output;
}

inline std::vector<double> exact(const ProductShape& shape, const ProductInputs& inputs) {
  std::vector<double> output(shape.m * shape.n);
  // From one element of a sum to the next. Pointers, since this runs without optimisation, too.
  const std::size_t a_step = shape.a_transposed ? shape.m : 1;
  const std::size_t b_step = shape.b_transposed ? 1 : shape.n;
  for (std::size_t i = 0; i < shape.m; ++i) {
    for (std::size_t j = 0; j < shape.n; ++j) {
      const double* a = inputs.a.data() + (shape.a_transposed ? i : i * shape.k);
      const double* b = inputs.b.data() + (shape.b_transposed ? j * shape.k : j);
      double sum = 0;
      for (std::size_t p = 0; p < shape.k; ++p) sum += a[p * a_step] * b[p * b_step];
      if (shape.bias) sum += inputs.bias[j];
      if (shape.added) sum += inputs.added[i * shape.n + j];
      if (shape.factor) sum *= inputs.factor[i * shape.n + j];
      output[i * shape.n + j] = sum;
    }
  }
  return output;
}

}  // namespace lockstep::cpu::gemm
