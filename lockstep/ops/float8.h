// The operations of linear layers in 8 bits: a tensor is quantized with a scale of its own, and a
// product divides by the scales of both of its factors. The rules of ops/arguments.h hold.
#pragma once

#include <cstdint>

#include "lockstep/base/math/float8.h"
#include "lockstep/ops/arguments.h"

namespace lockstep::ops {

// How a tensor is brought into the range of a Float8, f32 [kScaling]: 1 / scale; its scale, which
// elements are multiplied with before they are stored; the largest number of the format; and the
// amax (the largest magnitude) of each of the last updates, the newest first. A scale of 0: not
// known. cuBLASLt reads 1 / scale, and takes it from multiples of 16 bytes only: so it is first,
// and a row of several is as long as such a multiple.
inline constexpr std::int64_t kAmaxHistory = 16;
enum ScalingField : std::int64_t { kInverse, kScale, kLargest, kUnused, kHistory };
inline constexpr std::int64_t kScaling = kHistory + kAmaxHistory;
static_assert(kInverse == 0 && kScaling * sizeof(float) % 16 == 0);

// y = v * scale in 8 bits, and the same transposed; v is x, or x f'(z) where z is given too, or
// f(z) where only z is.
struct Quantize {
  Tensor x;       // [rows, columns], optional with z
  Tensor z = {};  // [rows, columns], optional
  Activation activation = Activation::kGeluTanh;
  Float8 format = Float8::kE4M3;
  Tensor scaling;    // f32 [kScaling]
  Tensor amax = {};  // f32 [1], optional: becomes the larger of itself and all |v|; NaN stays
  bool calibrates = false;  // with amax: a scale of 0 is first set to what suits that
  Tensor y = {};            // u8 [rows, columns], optional
  Tensor transposed = {};   // u8 [columns, rows], optional
  Tensor dbias = {};        // [columns], f32 or as x, optional: the column sums of v are added
};

// What has the shape of what is quantized.
inline const Tensor& quantized_from(const Quantize& op) {
  return is_given(op.x) || !is_given(op.z) ? op.x : op.z;
}

// y = a b^T / (the scales of both) + bias + residual. All three products of a linear layer are of
// this form: x and weight; dy and the transposed weight; dy and x, both transposed.
struct ScaledMatmul {
  Tensor a;  // u8 [rows, inner]
  Tensor b;  // u8 [columns, inner]
  Float8 a_format = Float8::kE4M3;
  Float8 b_format = Float8::kE4M3;
  Tensor a_scaling;      // f32 [kScaling]
  Tensor b_scaling;      // f32 [kScaling]
  Tensor bias = {};      // [columns], optional
  Tensor residual = {};  // [rows, columns], optional; may be y
  Tensor y;              // [rows, columns] of a compute type
  bool fast = false;     // sums may have fewer bits than f32 on the way (about 14 on Hopper)
};

// Takes the amax of an update into the histories, sets each scale by the largest of its history
// (base/math/float8.h), and sets amax to 0. One that is not finite is not taken.
struct UpdateScaling {
  Tensor scaling;  // f32 [tensors, kScaling]
  Tensor amax;     // f32 [tensors]
};

}  // namespace lockstep::ops
