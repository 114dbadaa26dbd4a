// The question of `lockstep plan`, and its answer as text and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/memory.h"

namespace lockstep::cli {

struct PlanQuestion {
  std::optional<plan::ModelShape> shape;  // nothing: only the number of parameters is known
  plan::Count parameters = 0;
  plan::Precision precision = plan::Precision::kBf16;
  plan::Count sequence = 0;  // this and the batch mean something with a shape only
  plan::Count batch = 1;
  std::vector<plan::Count> ranks;
  std::optional<plan::Count> memory;  // bytes a rank may use
  std::optional<double> tokens;
  double flops_per_gpu = 0;  // given with days or gpus
  std::optional<double> days;
  std::optional<double> gpus;
};

// Of all layers, for one micro-batch; 0 without a shape.
plan::Count activations(const PlanQuestion& question, plan::Recompute recompute);
// The ways to recompute that make a difference: all three, or without a shape only kNone.
std::vector<plan::Recompute> recompute_modes(const PlanQuestion& question);
// Whether states and activations together fit into that many bytes.
bool fits(const PlanQuestion& question, const plan::StateBytes& states, plan::Recompute recompute,
          plan::Count memory);
// The fewest ranks with which they fit.
std::optional<plan::Count> fewest_ranks(const PlanQuestion& question, int zero_stage,
                                        plan::Recompute recompute, plan::Count memory);

// "gpt2-124m: family gpt2, 12 layers, ...", two lines.
std::string describe(const plan::ModelShape& shape);

std::string plan_text(const PlanQuestion& question);
std::string plan_json(const PlanQuestion& question);

}  // namespace lockstep::cli
