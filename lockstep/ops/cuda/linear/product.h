// A product of matrices in the terms of cuBLASLt, whose matrices are column-major: D = op(A) op(B)
// [+ C], then the epilogue, which changes D's elements before they are rounded and stored. D is [m,
// n], op(A) [m, k], op(B) [k, n]. A row-major tensor [rows, width] is the column-major matrix
// [width, rows] of the leading dimension `width`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/math/float8.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

enum class Epilogue : std::uint8_t {
  kNone,
  kBias,        // adds a vector of m elements to every column
  kGeluSlopes,  // multiplies D with gelu'(aux)
};

// Everything that the choice of an algorithm depends on. It is the key of prepared products.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldd = 0;  // C, D and aux have the same leading dimension
  bool transpose_a = false;
  bool transpose_b = false;
  bool adds = false;  // C is given
  Epilogue epilogue = Epilogue::kNone;
  DType input = DType::kF32;   // A, B; u8 where they have formats of 8 bits
  DType output = DType::kF32;  // C, D, bias, aux
  // Of A and B, both or neither. Their scales come with the operands.
  std::optional<Float8> format_a = {}, format_b = {};
  bool fast = false;  // 8-bit products may accumulate with fewer bits
  // The alignment of the addresses in bytes, up to 16. Bias and aux: always 16.
  std::uint8_t align_a = 16, align_b = 16, align_c = 16, align_d = 16;

  friend bool operator==(const Product&, const Product&) = default;
};

struct ProductHash {
  std::size_t operator()(const Product& product) const;
};

// One word per property; equal for equal products only.
std::string text(const Product& product);

struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  // with Product::adds; may be d
  bool c_is_zero = false;   // then it is not read
  void* d = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;
  // f32 each, for 8-bit formats: the factors of D for A and B.
  const void* scale_a = nullptr;
  const void* scale_b = nullptr;
};

}  // namespace lockstep::cuda
