// The memory and traffic of one worker at every ZeRO stage, with every recompute mode, on any
// number of ranks.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/traffic.h"
#include "lockstep/train/options/options.h"

namespace lockstep::cli {

// The classes of a plan, summarized for a row.
struct PlanParts {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t activations = 0;  // with the outputs of blocks
  std::size_t buffers = 0;      // the rest: gathered, in flight, communication, workspace, gaps
};
PlanParts parts_of(const nn::MemoryPlan& plan);

// What a worker sends in a step; nothing if it cannot be predicted.
std::optional<parallel::Traffic> traffic_of(const train::TrainOptions& options,
                                            const nn::MemoryPlan& plan);
nlohmann::ordered_json json_of(const std::optional<parallel::Traffic>& traffic);

struct Alternative {
  int ranks = 1;
  int zero = 0;
  train::RecomputeChoice recompute = train::RecomputeChoice::kNone;
  PlanParts parts;
  std::size_t bytes = 0;
  std::optional<parallel::Traffic> traffic;
  double recomputed = 0;  // of the FLOPs of a step without it
};

// All valid combinations, each with the micro-batches of `planned`, on `machines` nodes unless
// there is one worker. ZeRO++ settings are dropped at stages without it. With a budget also the
// cheapest recomputation that fits ("auto").
std::vector<Alternative> plan_alternatives(const train::TrainOptions& planned,
                                           std::span<const int> ranks, int machines,
                                           std::size_t budget, const Ops& ops);

std::string text(std::span<const Alternative> alternatives, int machines, std::size_t budget);
nlohmann::ordered_json json_of(std::span<const Alternative> alternatives, std::size_t budget);

}  // namespace lockstep::cli
