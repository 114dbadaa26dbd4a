// A matrix product with fused operations on its result, as linear layers use it:
//
//   output[i, j] = finish(sum over p of a[i, p] b[p, j])
#pragma once

#include <compare>
#include <cstddef>
#include <optional>

#include "lockstep/ops/arguments.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu::gemm {

// Element [i, j] lies at i * row_stride + j * column_stride elements; one of the strides is 1.
struct Matrix {
  const std::byte* data = nullptr;
  std::size_t row_stride = 0;
  std::size_t column_stride = 1;
};

// The operations on a sum, in this order; null: skipped. All have the type of the output; [m, n]
// ones are dense.
struct Finish {
  const std::byte* bias = nullptr;    // [n], added
  const std::byte* added = nullptr;   // [m, n]; may be the output
  const std::byte* factor = nullptr;  // [m, n], multiplies
  // Of the sum rounded to the type of the output; its derivative goes to [m, n] `derivative`, and
  // that sum to [m, n] `z`.
  std::optional<ops::Activation> activation;
  std::byte* derivative = nullptr;
  std::byte* z = nullptr;
};

// The shape of a product.
struct ProductShape {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  DType dtype = DType::kF32;   // of a and b
  DType output = DType::kF32;  // dtype or f32
  bool a_transposed = false;   // a lies as [k, m]
  std::size_t a_columns = 0;   // of the matrix that such a transposed a is cut from; 0: of a itself
  bool b_transposed = false;   // b lies as [n, k]
  // What of Finish happens; an activation needs nothing of its own.
  bool bias = false;
  bool added = false;       // something else than the output
  bool accumulate = false;  // the output is what is added
  bool factor = false;

  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
};

struct Product {
  ProductShape shape;
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* output = nullptr;  // [m, n], dense
  Finish finish;
};

// From one of the k rows of a transposed a to the next.
inline std::size_t transposed_stride(const ProductShape& shape) {
  return shape.a_columns > 0 ? shape.a_columns : shape.m;
}
inline Matrix matrix_a(const Product& product) {
  const ProductShape& shape = product.shape;
  return shape.a_transposed ? Matrix{product.a, 1, transposed_stride(shape)}
                            : Matrix{product.a, shape.k, 1};
}
inline Matrix matrix_b(const Product& product) {
  const ProductShape& shape = product.shape;
  return shape.b_transposed ? Matrix{product.b, 1, shape.k} : Matrix{product.b, shape.n, 1};
}

}  // namespace lockstep::cpu::gemm
