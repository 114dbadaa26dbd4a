#include "lockstep/optim/optimizer.h"

#include <cmath>

#include "lockstep/ops/optimizer_arguments.h"

namespace lockstep::optim {
namespace {

constexpr std::string_view kKindNames[] = {"adamw", "adam", "sgd"};
constexpr double kBelowOne = 0.999999999;

// The settings of one of the updates of a step.
struct PartSettings {
  double rate = 0;
  double beta2 = 0;
  double decay = 0;
};
PartSettings settings_of_part(const OptimizerOptions& options, const UpdateStep& step) {
  PartSettings part{.rate = step.rate, .beta2 = options.beta2, .decay = options.weight_decay};
  if (step.parts == 1) return part;
  const double fraction = 1.0 / step.parts;
  if (options.kind == OptimizerKind::kSgd) {
    part.rate *= fraction;
    return part;
  }
  part.rate *= std::sqrt(fraction);
  part.beta2 = 1 - (1 - options.beta2) * fraction;
  // Beside the gradient it is the rate that shrinks parameters, n times as often.
  if (options.kind == OptimizerKind::kAdamW) part.decay *= std::sqrt(fraction);
  return part;
}

}  // namespace

std::string_view name(OptimizerKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

void bind(Config& config, OptimizerOptions& options) {
  config.bind(
      "optimizer.kind", options.kind, kKindNames,
      "adamw (decoupled weight decay), adam (weight decay is added to the gradient), or sgd.");
  config.bind("optimizer.beta1", options.beta1, "Adam's decay rate of the first moment.",
              {.min = 0, .max = kBelowOne});
  config.bind("optimizer.beta2", options.beta2, "Adam's decay rate of the second moment.",
              {.min = 0, .max = kBelowOne});
  config.bind("optimizer.epsilon", options.epsilon,
              "What Adam adds to the root of the second moment before dividing by it.", {.min = 0});
  config.bind("optimizer.momentum", options.momentum,
              "The momentum of SGD; 0: plain SGD, without velocities.",
              {.min = 0, .max = kBelowOne});
  config
      .bind("optimizer.weight_decay", options.weight_decay,
            "Weight decay of matrices and embeddings; biases and norms are not decayed.",
            {.min = 0})
      .formerly("optimizer.decay");
  config
      .bind("optimizer.max_grad_norm", options.max_grad_norm,
            "Gradients are clipped to this global norm; 0: never.", {.min = 0})
      .formerly("optimizer.clip");
}

void update(Ops& ops, const OptimizerOptions& options, const UpdateStep& step, const Range& range) {
  const PartSettings part = settings_of_part(options, step);
  const double decay = range.decays ? part.decay : 0;
  if (options.kind == OptimizerKind::kSgd) {
    ops.run(ops::Sgd{.master = range.master,
                     .gradient = range.gradient,
                     .velocity = options.momentum != 0 ? range.velocity : Tensor(),
                     .parameter = range.parameter,
                     .rate = part.rate,
                     .momentum = options.momentum,
                     .decay = decay,
                     .gradient_scale = step.gradient_scale});
    return;
  }
  ops.run(ops::Adam{.master = range.master,
                    .gradient = range.gradient,
                    .first_moment = range.first_moment,
                    .second_moment = range.second_moment,
                    .parameter = range.parameter,
                    .rate = part.rate,
                    .beta1 = options.beta1,
                    .beta2 = part.beta2,
                    .epsilon = options.epsilon,
                    .decay = decay,
                    .decoupled = options.kind == OptimizerKind::kAdamW,
                    .step = step.step,
                    .gradient_scale = step.gradient_scale});
}

void update_segments(Ops& ops, const OptimizerOptions& options, const DeviceStep& step,
                     const Range& flat, std::span<const ops::AdamSegment> segments,
                     const Tensor& table) {
  if (options.kind != OptimizerKind::kSgd) {
    ops.run(ops::AdamSegments{.adam = {.master = flat.master,
                                       .gradient = flat.gradient,
                                       .first_moment = flat.first_moment,
                                       .second_moment = flat.second_moment,
                                       .parameter = flat.parameter,
                                       .rate = step.rate,
                                       .beta1 = options.beta1,
                                       .beta2 = options.beta2,
                                       .epsilon = options.epsilon,
                                       .decay = options.weight_decay,
                                       .decoupled = options.kind == OptimizerKind::kAdamW,
                                       .step = step.step,
                                       .gradient_scale = step.gradient_scale},
                              .table = table});
    return;
  }
  for (const ops::AdamSegment& segment : segments) {
    const auto part = [&](const Tensor& buffer) {
      return ops::is_given(buffer) ? buffer.slice(segment.first, segment.elements) : Tensor();
    };
    ops.run(ops::Sgd{.master = part(flat.master),
                     .gradient = part(flat.gradient),
                     .velocity = options.momentum != 0 ? part(flat.velocity) : Tensor(),
                     .parameter = part(flat.parameter),
                     .rate = step.rate,
                     .momentum = options.momentum,
                     .decay = segment.decays ? options.weight_decay : 0,
                     .gradient_scale = step.gradient_scale});
  }
}

}  // namespace lockstep::optim
