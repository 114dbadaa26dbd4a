// The checks that every implementation of Ops makes before it writes anything: shapes, types,
// devices, ranges of numbers, and memory that may not be shared. check(x) throws
// Error(kInvalidArgument) unless x is as ops/arguments.h requires:
//
//   linear: weight is [768, 3072] f32, expected [*, 768] bf16 as x is
//
// What GPUs lack is Error(kUnsupported) there. Indices outside their table are found by
// check_indices where the elements are read.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/float8.h"
#include "lockstep/ops/optimizer_arguments.h"
#include "lockstep/ops/relative_bias.h"
#include "lockstep/ops/routing.h"
#include "lockstep/tensor/device.h"

namespace lockstep::ops {

// What an implementation supports.
struct Accepts {
  Device device;     // where all tensors lie
  bool f64 = false;  // as a compute type
  bool z = false;    // in the backward of linear layers
};

void check(const Linear& op, const Accepts& accepts = {});
void check(const LinearActivation& op, const Accepts& accepts = {});
void check(const LinearBackwardInput& op, const Accepts& accepts = {});
void check(const LinearBackwardWeight& op, const Accepts& accepts = {});
void check(const Activate& op, const Accepts& accepts = {});
void check(const Multiply& op, const Accepts& accepts = {});
void check(const Add& op, const Accepts& accepts = {});
void check(const SwiGlu& op, const Accepts& accepts = {});
void check(const SwiGluBackward& op, const Accepts& accepts = {});
void check(const Drop& op, const Accepts& accepts = {});
void check(const Cast& op, const Accepts& accepts = {});
void check(const Scale& op, const Accepts& accepts = {});
void check(const SoftCap& op, const Accepts& accepts = {});
void check(const Norm& op, const Accepts& accepts = {});
void check(const NormBackward& op, const Accepts& accepts = {});
void check(const HeadNorm& op, const Accepts& accepts = {});
void check(const HeadNormBackward& op, const Accepts& accepts = {});
void check(const Embedding& op, const Accepts& accepts = {});
void check(const EmbeddingBackward& op, const Accepts& accepts = {});
void check(const Attention& op, const Accepts& accepts = {});
void check(const AttentionBackward& op, const Accepts& accepts = {});
void check(const MergeAttention& op, const Accepts& accepts = {});
void check(const CopyColumns& op, const Accepts& accepts = {});
void check(const Route& op, const Accepts& accepts = {});
void check(const RouteBackward& op, const Accepts& accepts = {});
void check(const GatherTokens& op, const Accepts& accepts = {});
void check(const CombineTokens& op, const Accepts& accepts = {});
void check(const WeightRows& op, const Accepts& accepts = {});
void check(const AddCounts& op, const Accepts& accepts = {});
void check(const CountTargets& op, const Accepts& accepts = {});
void check(const BalanceExperts& op, const Accepts& accepts = {});
void check(const RelativeBias& op, const Accepts& accepts = {});
void check(const RelativeBiasBackward& op, const Accepts& accepts = {});
void check(const Rotary& op, const Accepts& accepts = {});
void check(const DecodeAttention& op, const Accepts& accepts = {});
void check(const Sample& op, const Accepts& accepts = {});
void check(const LogitStatistics& op, const Accepts& accepts = {});
void check(const CrossEntropy& op, const Accepts& accepts = {});
void check(const SquaredError& op, const Accepts& accepts = {});
void check(const Adam& op, const Accepts& accepts = {});
void check(const Sgd& op, const Accepts& accepts = {});
void check(const SumOfSquares& op, const Accepts& accepts = {});
void check(const AdamSegments& op, const Accepts& accepts = {});
void check(const ChunkedSumOfSquares& op, const Accepts& accepts = {});
void check(const ClipScale& op, const Accepts& accepts = {});
void check(const Quantize& op, const Accepts& accepts = {});
void check(const ScaledMatmul& op, const Accepts& accepts = {});
void check(const UpdateScaling& op, const Accepts& accepts = {});

// Throws where an element of `indices` (i32, on the CPU) is not in [0, limit). `what` names it in
// the error: "embedding: tokens". kNoTarget passes where it is allowed.
void check_indices(const Tensor& indices, std::int64_t limit, std::string_view what,
                   bool allow_no_target = false);
// Throws that error, for code that reads the elements elsewhere.
[[noreturn]] void fail_index(std::string_view what, std::int64_t position, std::int32_t index,
                             std::int64_t limit, bool allow_no_target);

}  // namespace lockstep::ops
