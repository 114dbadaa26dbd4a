#include "lockstep/nn/memory/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/nn/device_batch.h"
#include "lockstep/nn/memory/activation_plan.h"
#include "lockstep/nn/memory/state_plan.h"

namespace lockstep::nn {
namespace {

void check(const Setup& setup) {
  const BatchShape& shape = setup.shape;
  if (shape.batch < 1 || shape.sequence < 1 || shape.source_sequence < 0) {
    fail(ErrorCode::kInvalidArgument,
         "a micro-batch of {} sequences of {} tokens (source: {}) is empty; each of them must be 1 "
         "or more",
         shape.batch, shape.sequence, shape.source_sequence);
  }
  if (const auto& slices = setup.slices; !slices.empty()) {
    const std::int64_t tokens = std::accumulate(slices.begin(), slices.end(), std::int64_t{0});
    if (shape.batch != 1 || tokens != shape.sequence || std::ranges::min(slices) < 1) {
      fail(
          ErrorCode::kInvalidArgument,
          "{} slices of {} tokens together do not make a micro-batch of {} sequences of {} tokens; "
          "slices need one sequence, and have 1 token or more",
          slices.size(), tokens, shape.batch, shape.sequence);
    }
  }
  const auto computes = [](DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  };
  if (!computes(setup.dtype)) {
    fail(ErrorCode::kInvalidArgument, "models compute in f32, bf16 or f16, not in {}",
         name(setup.dtype));
  }
  if (setup.fp8 && setup.dtype != DType::kBF16) {
    fail(ErrorCode::kInvalidArgument, "with fp8 all else is computed in bf16, not in {}",
         name(setup.dtype));
  }
  if (setup.gradient != DType::kF32 && setup.gradient != setup.dtype) {
    fail(ErrorCode::kInvalidArgument, "gradients of {} parameters must be f32 or {}, not {}",
         name(setup.dtype), name(setup.dtype), name(setup.gradient));
  }
}

}  // namespace

MemoryPlan plan_memory(const Model& model, const Setup& setup, const Ops& ops,
                       OptimizerState optimizer, const Sharding& sharding, const Tiers& tiers,
                       Places places, const plan::StageBuffers& buffers) {
  check(setup);
  if (buffers.chunks.size() != model.chunks().size()) {
    fail(ErrorCode::kInvalidArgument,
         "the stage of '{}' has {} chunks, but its schedule was made for {}", model.name(),
         model.chunks().size(), buffers.chunks.size());
  }
  MemoryPlan plan;
  plan.setup = setup;
  plan.device = ops.device();
  plan.optimizer = optimizer;
  plan.sharding = sharding;
  plan.tiers = tiers;
  plan.specs = specs_of(model, setup, ops);
  plan.flat = FlatParameters(model, plan.specs, Shards::block_multiple(sharding));
  plan.shards = Shards(plan.flat, sharding);
  plan.blocks.resize(model.size());
  plan.stages = model.stages();
  plan.pools = buffers.chunks;
  plan.one_at_a_time = buffers.one_at_a_time();
  plan.weight_versions = buffers.weight_versions;
  for (const BlockSpec& spec : plan.specs) {
    plan.flops.forward += spec.forward_flops;
    plan.flops.backward += spec.backward_flops;
    plan.flops.recompute += spec.recompute_flops;
  }
  plan_states(model, plan);
  plan_activations(model, plan);
  if (plan.device != Device{}) {
    plan.outside.push_back({.name = "batch",
                            .group = "workspace",
                            .bytes = DeviceBatch::bytes(setup, model.block(0).features())});
  }
  const auto lay_out = places == Places::kFound ? plan_layout : bound_layout;
  plan.layout = lay_out(plan.requests);
  plan.symmetric_layout = lay_out(plan.symmetric_requests);
  plan.host_layout = lay_out(plan.host_requests);
  plan.host_symmetric_layout = lay_out(plan.host_symmetric_requests);
  plan.file_layout = lay_out(plan.file_requests);
  return plan;
}

}  // namespace lockstep::nn
