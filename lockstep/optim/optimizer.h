// How parameters follow their gradients: AdamW, Adam, or SGD with momentum.
//
// An optimizer here is a few settings and a function over ranges of elements; what it remembers of
// each parameter lies in tensors that the caller planned and owns. So a range may be a block, a
// bucket or a shard, and a checkpoint stores the tensors and the number of steps, nothing else.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/config/config.h"
#include "lockstep/ops/ops.h"

namespace lockstep::optim {

enum class OptimizerKind : std::uint8_t {
  kAdamW,  // weight decay beside the gradient
  kAdam,   // weight decay as part of the gradient
  kSgd,    // with or without momentum
};
std::string_view name(OptimizerKind kind);  // "adamw", "adam", "sgd"

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double momentum = 0.9;      // of SGD; 0: none
  double weight_decay = 0.1;  // of the ranges that decay
  double max_grad_norm = 1;   // of all gradients together; 0: any
};

// Declares the keys optimizer.*.
void bind(Config& config, OptimizerOptions& options);

// What is remembered of every parameter, besides its f32 value.
constexpr bool has_moments(const OptimizerOptions& options) {
  return options.kind != OptimizerKind::kSgd;
}
constexpr bool has_velocity(const OptimizerOptions& options) {
  return options.kind == OptimizerKind::kSgd && options.momentum != 0;
}

// Elements that are updated alike; all tensors given have as many.
struct Range {
  Tensor master;         // f32
  Tensor gradient;       // f32, bf16 or f16
  Tensor parameter;      // bf16 or f16: the rounded copy that is computed with; absent in f32
  Tensor first_moment;   // f32, with has_moments()
  Tensor second_moment;  // f32, with has_moments()
  Tensor velocity;       // f32, with has_velocity()
  bool decays = true;
};

// A step may be made of n updates, each by the gradient of a part of its sequences. Settings are
// meant for whole steps, and scaled so that n updates do about what one would. SGD moves along the
// gradient: an n-th of the rate. Adam moves equally far by a part's gradient, whose direction has
// more of chance in it: the rate over the root of n. Its second moment is of so many sequences, not
// of so many updates, and AdamW shrinks as much in a step. (Momentum stays as it is: such updates
// come late, which is a momentum of its own.)
struct UpdateStep {
  std::int64_t step = 1;  // counts the updates that were made, this one included
  double rate = 1e-3;
  double gradient_scale = 1;  // gradients are multiplied with it: clipping, loss scale
  int parts = 1;              // n, 1 or more
};

// The numbers of a step as operations read them when they run.
struct DeviceStep {
  ops::Scalar step;
  ops::Scalar rate;
  ops::Scalar gradient_scale;  // NaN: the step is skipped
};
// Updates segments of flat buffers; `table` is ops::adam_table() of them, on the device.
void update_segments(Ops& ops, const OptimizerOptions& options, const DeviceStep& step,
                     const Range& flat, std::span<const ops::AdamSegment> segments,
                     const Tensor& table);

// One pass over memory.
void update(Ops& ops, const OptimizerOptions& options, const UpdateStep& step, const Range& range);

}  // namespace lockstep::optim
