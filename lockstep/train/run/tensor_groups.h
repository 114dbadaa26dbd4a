// The groups of a job whose ranks divide a model (plan/mesh/mesh.h): tensor groups, and between
// them the workers of data parallelism.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/tensor_axis.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/plan/mesh/mesh.h"

namespace lockstep::train {

class TensorGroups {
 public:
  // nullptr: one rank. `world` outlives it.
  TensorGroups(const parallel::ParallelOptions& options, Communicator* world) : workers_(world) {
    if (world == nullptr || options.tensor == 1) return;
    const plan::Mesh mesh = plan::mesh_of(world->size(), {.data = 0, .tensor = options.tensor});
    const auto group = [&](plan::Axis axis) {
      return world->split(mesh.color(axis, world->rank()), mesh.key(axis, world->rank()));
    };
    tensor_ = group(plan::Axis::kTensor);
    axis_.emplace(*tensor_);
    data_ = group(plan::Axis::kData);
    workers_ = data_->size() > 1 ? data_.get() : nullptr;
  }

  // nullptr: there are none.
  nn::TensorAxis* axis() { return axis_ ? &*axis_ : nullptr; }
  // nullptr: there is one.
  Communicator* workers() const { return workers_; }

 private:
  std::unique_ptr<Communicator> tensor_;
  std::unique_ptr<Communicator> data_;
  std::optional<nn::TensorAxis> axis_;
  Communicator* workers_;
};

}  // namespace lockstep::train
