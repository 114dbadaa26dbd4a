// Every setting of a training run, with its default.
//
//   [model]
//   name = "gpt2-124m"        # or family, layers, hidden, heads, ... of your own
//   [batch]
//   sequence = 1024
//   micro = 4                 # sequences that are computed at once
//   accumulation = 8          # micro-batches of a step
//   [memory]
//   limit = "8GiB"
//
// base/config.h says how they are read; options.cpp documents each key in a sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/config.h"
#include "lockstep/nn/memory_plan.h"
#include "lockstep/nn/models.h"
#include "lockstep/optim/loss_scale.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/plan/memory.h"

namespace lockstep::train {

// A model by name, or by its sizes; 0 is what is usual in the family.
struct ModelChoice {
  std::string name;
  plan::Family family = plan::Family::kGpt2;
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int feed_forward = 0;
  int vocabulary = 0;
  int positions = 0;
  double epsilon = 0;    // of norms
  double theta = 10000;  // of rotary positions
  double dropout = 0;
};

struct BatchChoice {
  int sequence = 0;  // 0: as long as the model has positions
  int micro = 1;
  int accumulation = 1;
};

// The type that gradients are kept in.
enum class GradientChoice : std::uint8_t {
  kAuto,     // as kCompute with one micro-batch a step; as kF32 where several are added up
  kCompute,  // the precision's
  kF32,
};
std::string_view name(GradientChoice gradients);  // "auto", "compute", "f32"

struct TrainOptions {
  ModelChoice model;
  BatchChoice batch;
  plan::Precision precision = plan::Precision::kBf16;
  GradientChoice gradients = GradientChoice::kAuto;
  plan::Recompute recompute = plan::Recompute::kNone;
  optim::OptimizerOptions optimizer;
  optim::ScheduleOptions schedule;
  optim::LossScaleOptions loss_scale;  // of f16
  int threads = 0;                     // 0: one for each core this process may use
  int seed = 1;
  std::size_t memory_limit = 0;  // bytes; 0: none
};

// Declares the keys; `options` must outlive `config` and stay in place.
void bind(Config& config, TrainOptions& options);

// What follows from the options. shape_of() throws Error(kInvalidArgument) for a model that is not
// named, or named and described, or whose sizes do not fit together; setup_of() for a sequence that
// is longer than the model's positions.
plan::ModelShape shape_of(const ModelChoice& choice);
nn::Model model_of(const TrainOptions& options);
nn::Setup setup_of(const TrainOptions& options);
nn::OptimizerState optimizer_state_of(const TrainOptions& options);
int threads_of(const TrainOptions& options);

DType dtype_of(plan::Precision precision);

}  // namespace lockstep::train
