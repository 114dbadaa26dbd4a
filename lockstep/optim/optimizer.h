// Optimizers: AdamW, Adam, and SGD with momentum.
//
// An optimizer is a few settings and a function over ranges of elements. Its states are tensors
// that the caller planned and owns. So a range may be a block, a bucket or a shard, and a
// checkpoint stores only these tensors and the number of steps.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/config/config.h"
#include "lockstep/ops/ops.h"

namespace lockstep::optim {

enum class OptimizerKind : std::uint8_t {
  kAdamW,  // decoupled weight decay
  kAdam,   // weight decay added to the gradient
  kSgd,    // with or without momentum
};
std::string_view name(OptimizerKind kind);  // "adamw", "adam", "sgd"

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double momentum = 0.9;      // of SGD; 0: none
  double weight_decay = 0.1;  // for ranges that decay
  double max_grad_norm = 1;   // the limit of the global norm; 0: none
};

// Declares the keys optimizer.*.
void bind(Config& config, OptimizerOptions& options);

// The optimizer states of each parameter, besides its f32 value.
constexpr bool has_moments(const OptimizerOptions& options) {
  return options.kind != OptimizerKind::kSgd;
}
constexpr bool has_velocity(const OptimizerOptions& options) {
  return options.kind == OptimizerKind::kSgd && options.momentum != 0;
}

// Elements that are updated with the same settings; all given tensors have the same size.
struct Range {
  Tensor master;         // f32
  Tensor gradient;       // f32, bf16 or f16
  Tensor parameter;      // bf16 or f16: the rounded copy that the model uses; absent in f32
  Tensor first_moment;   // f32, with has_moments()
  Tensor second_moment;  // f32, with has_moments()
  Tensor velocity;       // f32, with has_velocity()
  bool decays = true;
};

// A step may consist of n updates, each with the gradient of a part of its sequences (asp and ssp).
// Settings are meant for whole steps and are scaled so that n updates do about as much as one. SGD
// uses 1/n of the learning rate. Adam takes equally long steps along noisier gradients, so it uses
// the learning rate divided by the root of n; beta2 and AdamW's weight decay are scaled to decay as
// much per step. Momentum is not scaled: late updates already act like momentum.
struct UpdateStep {
  std::int64_t step = 1;  // the number of updates including this one
  double rate = 1e-3;
  double gradient_scale = 1;  // a factor of gradients: clipping, loss scale
  int parts = 1;              // n, 1 or more
};

// The numbers of a step that operations read on the device when they run.
struct DeviceStep {
  ops::Scalar step;
  ops::Scalar rate;
  ops::Scalar gradient_scale;  // NaN: the step is skipped
};
// Updates segments of flat buffers; `table` is ops::adam_table() of them, on the device.
void update_segments(Ops& ops, const OptimizerOptions& options, const DeviceStep& step,
                     const Range& flat, std::span<const ops::AdamSegment> segments,
                     const Tensor& table);

// Updates a range in one pass over memory.
void update(Ops& ops, const OptimizerOptions& options, const UpdateStep& step, const Range& range);

}  // namespace lockstep::optim
