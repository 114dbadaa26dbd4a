// The groups of a job whose ranks divide a model (plan/mesh/mesh.h): tensor groups, pipelines of
// these, context groups of workers that have the same sequences, expert groups of workers that have
// others, and all workers, which data parallelism and ZeRO are for.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/context_axis.h"
#include "lockstep/nn/expert_axis.h"
#include "lockstep/nn/pipeline_axis.h"
#include "lockstep/nn/tensor_axis.h"
#include "lockstep/parallel/late_update.h"
#include "lockstep/parallel/strategy/communication_group.h"
#include "lockstep/parallel/strategy/mesh_of_job.h"

namespace lockstep::train {

class MeshGroups {
 public:
  // nullptr: one rank. `world` outlives it.
  MeshGroups(const parallel::ParallelOptions& options, Communicator* world) : workers_(world) {
    if (world == nullptr || parallel::ranks_per_model(options) == 1) return;
    const plan::Mesh mesh = *parallel::mesh_of_job(options, world->size());
    const auto group = [&](plan::Axes axes) {
      return world->split(mesh.color(axes, world->rank()), mesh.key(axes, world->rank()));
    };
    const bool on_device = options.device != Device{};
    if (options.tensor > 1) {
      tensor_ = group(plan::Axis::kTensor);
      if (on_device) {
        tensor_on_device_ =
            parallel::queued_group(*tensor_, options, parallel::Queued::kCollectives);
      }
      tensor_axis_.emplace(*tensor_, on_device ? *tensor_on_device_ : *tensor_,
                           on_device ? 1 : options.tensor_chunks);
    }
    if (options.expert > 1) {
      expert_ = group(plan::Axis::kExpert);
      if (on_device) {
        expert_on_device_ = parallel::queued_group(*expert_, options, parallel::Queued::kBoth);
      }
      expert_axis_.emplace(*expert_, on_device ? *expert_on_device_ : *expert_);
    }
    if (options.context > 1) {
      context_ = group(plan::Axis::kContext);
      if (on_device) {
        context_on_device_ = parallel::queued_group(*context_, options, parallel::Queued::kBoth);
      }
      context_axis_.emplace(on_device ? *context_on_device_ : *context_);
    }
    if (options.pipeline > 1) {
      pipeline_ = group(plan::Axis::kPipeline);
      if (on_device) {
        pipeline_on_device_ =
            parallel::queued_group(*pipeline_, options, parallel::Queued::kMessages);
      }
      pipeline_axis_.emplace(*pipeline_, on_device ? *pipeline_on_device_ : *pipeline_);
    }
    if (parallel::keeps_two_versions(options)) {
      late_pipeline_ = group(plan::Axis::kPipeline);
      late_pipeline_axis_.emplace(*late_pipeline_);
      if (options.tensor > 1) {
        late_tensor_ = group(plan::Axis::kTensor);
        late_tensor_axis_.emplace(*late_tensor_);
      }
    }
    data_ = group({plan::Axis::kData, plan::Axis::kExpert, plan::Axis::kContext});
    workers_ = data_->size() > 1 ? data_.get() : nullptr;
  }

  // nullptr: there are none.
  nn::TensorAxis* tensor() { return tensor_axis_ ? &*tensor_axis_ : nullptr; }
  nn::ContextAxis* context() { return context_axis_ ? &*context_axis_ : nullptr; }
  nn::ExpertAxis* expert() { return expert_axis_ ? &*expert_axis_ : nullptr; }
  nn::PipelineAxis* pipeline() { return pipeline_axis_ ? &*pipeline_axis_ : nullptr; }
  // The same ranks for a late update (parallel/late_update.h).
  parallel::LateUpdate::Axes late() {
    return {.tensor = late_tensor_axis_ ? &*late_tensor_axis_ : nullptr,
            .pipeline = late_pipeline_axis_ ? &*late_pipeline_axis_ : nullptr};
  }
  // The ranks of all workers at this rank's place in its worker; nullptr: there is one.
  Communicator* workers() const { return workers_; }

 private:
  std::unique_ptr<Communicator> tensor_;
  std::unique_ptr<Communicator> context_;
  std::unique_ptr<Communicator> expert_;
  std::unique_ptr<Communicator> pipeline_;
  // The same ranks, over the memory of GPUs.
  std::unique_ptr<Communicator> tensor_on_device_;
  std::unique_ptr<Communicator> context_on_device_;
  std::unique_ptr<Communicator> expert_on_device_;
  std::unique_ptr<Communicator> pipeline_on_device_;
  std::unique_ptr<Communicator> late_tensor_;
  std::unique_ptr<Communicator> late_pipeline_;
  std::unique_ptr<Communicator> data_;
  std::optional<nn::TensorAxis> tensor_axis_;
  std::optional<nn::ContextAxis> context_axis_;
  std::optional<nn::ExpertAxis> expert_axis_;
  std::optional<nn::PipelineAxis> pipeline_axis_;
  std::optional<nn::TensorAxis> late_tensor_axis_;
  std::optional<nn::PipelineAxis> late_pipeline_axis_;
  Communicator* workers_;
};

}  // namespace lockstep::train
