// Bytes of a model in training, by formula.
//
// P parameters, N ranks, s sequence, b micro-batch, h hidden size, a heads. Optimizer: Adam, which
// keeps a first and a second moment in 32 bits; below 32-bit precision also a 32-bit master copy of
// the parameters.
//
//            parameters  gradients  master  first moment  second moment
//   bf16/f16      2          2         4          4             4       = 16 bytes per parameter
//   f32           4          4         -          4             4       = 16
//
// A ZeRO stage says what each rank holds 1/N of: at 1 the optimizer's state, at 2 the gradients
// too, at 3 the parameters too. With 16 bits that is 16P, 4P + 12P/N, 2P + 14P/N and 16P/N bytes a
// rank. Shards are whole elements: P/N stands for the largest one, P/N rounded up.
//
// A step sends, in multiples of P elements per rank: gradients reduced and shared, 2P; at stages 1
// and 2 gradients reduce-scattered and parameters gathered, 2P; at stage 3 parameters gathered
// twice and gradients reduce-scattered, 3P. Of each, a rank sends the (N-1)/N that are not its own.
//
// Activations are what a layer keeps for its backward. With values of e bytes and dropout masks of
// one byte, a feed-forward of 4h and all heads with their own keys and values, that is
//
//   none        s b h (16e + 2 + (2e + 1) a s / h)      e = 2:  s b h (34 + 5 a s / h)
//   attention   s b h (16e + 2)                                34 s b h
//   full        s b h e                                        2 s b h, the layer's input
//
// The attention of a decoder's layer to the encoder, with its norm, adds s b h (6e + 1) and, with
// none, (2e + 1) a s to the bracket.
//
// For other layers it is an estimate; what a kernel needs besides is not in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/plan/arithmetic.h"
#include "lockstep/plan/count.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::plan {

// kFp8: as bf16, but linear layers of blocks multiply in 8 bits.
enum class Precision { kBf16, kF16, kF32, kFp8 };
inline constexpr Precision kAllPrecisions[] = {Precision::kBf16, Precision::kF16, Precision::kF32,
                                               Precision::kFp8};
std::string_view name(Precision precision);
// Throws Error(kInvalidArgument) with the valid names.
Precision precision_from_name(std::string_view text);

inline constexpr int kZeroStages = 4;  // 0, which shards nothing, to 3

struct StateBytes {
  Count parameters = 0;
  Count gradients = 0;
  Count master = 0;
  Count first_moment = 0;
  Count second_moment = 0;

  Count optimizer() const { return sum({master, first_moment, second_moment}); }
  Count total() const { return sum({parameters, gradients, optimizer()}); }
};

StateBytes bytes_per_parameter(Precision precision);

// What the rank with the largest shard holds.
StateBytes state_bytes(Count parameters, Precision precision, int zero_stage, Count ranks);
// "16P", "4P + 12P/N"
std::string state_formula(Precision precision, int zero_stage);

// The fewest ranks with which the states of each are at most `budget` bytes; nothing if the
// unsharded part is already too large.
std::optional<Count> fewest_ranks(Count parameters, Precision precision, int zero_stage,
                                  Count budget);

// 2, 2, 2 and 3 times P.
Count traffic_multiple(int zero_stage);
// The bytes that a rank sends in a step: that multiple of the N-1 shards of others, in the type of
// gradients.
Count traffic_bytes(Count parameters, Precision precision, int zero_stage, Count ranks);

// Kept by one layer for one micro-batch; of an encoder-decoder by one of its encoder.
// Error(kInvalidArgument) for a mode that is not one of kFormulaRecompute.
Count activation_bytes(const ModelShape& shape, Count sequence, Count batch, Precision precision,
                       Recompute recompute);
// Kept by all layers; source and target are as long.
Count all_activation_bytes(const ModelShape& shape, Count sequence, Count batch,
                           Precision precision, Recompute recompute);
// Whether the formula was made for such a layer.
bool activation_formula_is_exact(const ModelShape& shape);

}  // namespace lockstep::plan
