// The arguments of operations of optimizers: updates of parameters in one pass over memory, and
// sums of squares of gradients.
#pragma once

#include "lockstep/ops/arguments.h"

namespace lockstep::ops {

// g = gradient * gradient_scale (+ decay * master where not decoupled)
// m = beta1 m + (1 - beta1) g, the first moment; v = beta2 v + (1 - beta2) g^2, the second
// master -= rate (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon)
//                 + decay * master where decoupled); parameter = master, rounded.
// A gradient_scale of NaN says that the step is skipped: nothing changes.
struct Adam {
  Tensor master;         // f32
  Tensor gradient;       // f32, bf16 or f16
  Tensor first_moment;   // f32
  Tensor second_moment;  // f32
  Tensor parameter;      // bf16 or f16, optional
  Scalar rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double decay = 0;
  bool decoupled = true;  // AdamW
  Scalar step = 1;        // 1 at the first
  Scalar gradient_scale = 1;
};

// Adam over segments of flat buffers as one operation, with the same bits as an Adam of each.
// Elements outside all segments do not change. adam.decay is that of the segments that decay.
struct AdamSegment {
  std::int64_t first = 0;
  std::int64_t elements = 0;
  bool decays = true;
};
struct AdamSegments {
  Adam adam;
  Tensor table;  // i64 [segments + 1, 4]: what adam_table() gave, on the device
};
// The table of segments that ascend and do not overlap. A row holds the first element, how many
// there are, the first tile and whether they decay; the last row closes the table. Tiles are
// numbered through all segments, each of up to kAdamTile elements of one segment, and begin at
// multiples of kAdamPack elements: so the blocks of a GPU find what is theirs.
inline constexpr std::int64_t kAdamTile = 1024;
inline constexpr std::int64_t kAdamPack = 4;
std::vector<std::int64_t> adam_table(std::span<const AdamSegment> segments);

// g = gradient * gradient_scale + decay * master
// velocity = momentum * velocity + g; master -= rate * velocity (g itself without momentum)
// A gradient_scale of NaN: nothing changes.
struct Sgd {
  Tensor master;
  Tensor gradient;
  Tensor velocity;   // f32, given with momentum
  Tensor parameter;  // bf16 or f16, optional
  Scalar rate = 1e-3;
  double momentum = 0;
  double decay = 0;
  Scalar gradient_scale = 1;
};

// result = the sum of squares of x; infinite or NaN where an element is. Or the sums of runs of 64
// elements, the last one maybe shorter: sum_of_runs() computes the result of the operation from
// them, with the same bits, if x has up to kMost elements. So several workers can compute what one
// would.
struct SumOfSquares {
  static constexpr std::size_t kRun = 64;
  static constexpr std::size_t kMost = std::size_t{1} << 20;

  Tensor x;
  Tensor result;  // f64 [1], or [runs]
};
constexpr std::size_t run_count(std::size_t elements) {
  return (elements + SumOfSquares::kRun - 1) / SumOfSquares::kRun;
}
// Runs are summed in spans of this many, and spans in order.
inline constexpr std::size_t kSpanRuns = 64;
double sum_of_runs(std::span<const double> runs);

// The sums of squares of chunks of `chunk_elements`, the last one maybe shorter, with the same bits
// as a SumOfSquares of each.
struct ChunkedSumOfSquares {
  Tensor x;
  std::int64_t chunk_elements = 0;  // up to SumOfSquares::kMost
  Tensor results;                   // f64 [chunks]
};

// The factor of gradients, from the sums of squares of their chunks.
//   norm = sqrt(the sum of squares) / loss_scale
//   scale = (limit / norm where there is a limit and the norm is larger, else 1) / loss_scale,
//           NaN where the norm is not finite
struct ClipScale {
  Tensor squares;    // f64 [n], of gradients that hold loss_scale as a factor
  double limit = 0;  // 0: none
  Scalar loss_scale = 1;
  Tensor norm;   // f64 [1]
  Tensor scale;  // f64 [1]
};

}  // namespace lockstep::ops
