// The flags by which topics of `lockstep explain` choose a model and its batch, and the memory plan
// that follows from them.
//
// The plan is made with the operations of ops/reference, which need no workspace of their own. So
// it, and every picture of it, is the same on all machines.
#pragma once

#include <optional>
#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/plan/memory.h"

namespace lockstep::cli {

struct ModelFlags {
  std::string model = "gpt2-124m";
  std::optional<plan::Count> layers;  // else those of the model
  std::int64_t batch = 8;
  std::int64_t sequence = 1024;
  std::string precision = "bf16";
  std::string recompute = "none";

  // Declares the flags; the struct outlives the command.
  void add_to(CLI::App& command);

  // These throw Error(kInvalidArgument) for unknown values.
  plan::ModelShape shape() const;
  nn::Setup setup() const;
  nn::MemoryPlan plan(const nn::Sharding& sharding = {}) const;
};

// "gpt2-124m with 4 layers, 8 x 1024 tokens, bf16"
std::string describe(const ModelFlags& flags);

// A colour for each block of a model, so that a picture distinguishes the blocks.
std::string block_colour(std::size_t block, std::size_t blocks);

}  // namespace lockstep::cli
