// The stages of a run's pipeline: their memory, what they send, and how long they wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/ops/ops.h"
#include "lockstep/train/options/options.h"

namespace lockstep::cli {

struct PlannedStage {
  std::string blocks;        // "embedding .. layer.5"; of several chunks, each
  int slots = 0;             // micro-batches between forward and backward, of all chunks
  std::size_t bytes = 0;     // of a rank
  double flops = 0;          // of forward and backward of a step
  std::uint64_t sent = 0;    // activations and gradients that a rank sends in a step
  std::uint64_t shared = 0;  // gradients of a table that several stages hold, likewise
};

struct PlannedPipeline {
  std::string schedule;
  std::vector<std::int64_t> slices;  // tokens of each; empty: sequences are whole
  std::vector<PlannedStage> stages;
  std::int64_t messages = 0;  // of a step of one worker
  double bubble = 0;          // of stages that compute equally long, forward a third of it
  // Where the pipeline is not emptied between steps: `bubble` is that of a step between others, and
  // this that of a step before and after which it is empty.
  double bubble_alone = 0;
  int weight_versions = 1;  // that every stage keeps
  int staleness = 0;        // updates that gradients are late
  double imbalance = 0;     // how much longer the largest stage computes than the mean
};

PlannedPipeline plan_pipeline(const train::TrainOptions& options, const Ops& ops);

std::string text(const PlannedPipeline& pipeline);
nlohmann::ordered_json json_of(const PlannedPipeline& pipeline);

}  // namespace lockstep::cli
