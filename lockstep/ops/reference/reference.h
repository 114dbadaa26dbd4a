// Every operation as plain loops: sums in double, one rounding at the end. The arguments have been
// checked.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/float8.h"
#include "lockstep/ops/optimizer_arguments.h"
#include "lockstep/ops/routing.h"

namespace lockstep::ops::reference {

void run(const Linear& op);
void run(const LinearActivation& op);
void run(const LinearBackwardInput& op);
void run(const LinearBackwardWeight& op);
void run(const Activate& op);
void run(const Multiply& op);
void run(const Add& op);
void run(const SwiGlu& op);
void run(const SwiGluBackward& op);
void run(const Drop& op);
void run(const Cast& op);
void run(const Scale& op);
void run(const SoftCap& op);
void run(const Norm& op);
void run(const NormBackward& op);
void run(const HeadNorm& op);
void run(const HeadNormBackward& op);
void run(const Embedding& op);
void run(const EmbeddingBackward& op);
void run(const Attention& op);
void run(const AttentionBackward& op);
void run(const MergeAttention& op);
void run(const CopyColumns& op);
void run(const Route& op);
void run(const RouteBackward& op);
void run(const GatherTokens& op);
void run(const CombineTokens& op);
void run(const WeightRows& op);
void run(const Rotary& op);
void run(const LogitStatistics& op);
void run(const CrossEntropy& op);
void run(const SquaredError& op);
void run(const Adam& op);
void run(const Sgd& op);
void run(const SumOfSquares& op);
void run(const Quantize& op);
void run(const ScaledMatmul& op);
void run(const UpdateScaling& op);

}  // namespace lockstep::ops::reference
