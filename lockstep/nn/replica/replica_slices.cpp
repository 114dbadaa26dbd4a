// What slices of a sequence have of a replica's tensors (nn/token_slice.h).
#include "lockstep/base/error.h"
#include "lockstep/nn/replica/replica.h"

namespace lockstep::nn {
namespace {

// What one slice has of a tensor of the whole sequence. A tensor that both declare with the same
// shape is shared. One that grows with the tokens has a range of elements for each slice. Another
// one is workspace, of which a slice takes the first elements.
Tensor part_of_slice(const Tensor& whole, const TensorSpec& spec, const TensorSpec& part,
                     const Setup& setup, const std::string& block) {
  if (!ops::is_given(whole) || part.shape == spec.shape) return whole;
  const auto elements = static_cast<std::int64_t>(spec.shape.elements());
  const auto own = static_cast<std::int64_t>(part.shape.elements());
  const Tensor flat = whole.reshaped({elements});
  if (own * setup.slice.of == elements * setup.shape.sequence) {
    return flat.slice(elements / setup.slice.of * setup.slice.first, own).reshaped(part.shape);
  }
  const bool is_workspace = part.life == Life::kForward || part.life == Life::kBackward;
  if (!is_workspace || own > elements) {
    fail(ErrorCode::kUnsupported,
         "block '{}' cannot be computed in slices of tokens: its tensor '{}' has {} elements for a "
         "slice of {} tokens and {} for all {}",
         block, spec.name, own, setup.shape.sequence, elements, setup.slice.of);
  }
  return flat.slice(0, own).reshaped(part.shape);
}

}  // namespace

void Replica::make_slices(Slot& slot) {
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const Block& block = model_.block(i);
    const std::vector<TensorSpec>& tensors = plan_.specs[i].tensors;
    KeptViews& kept = slot.blocks[i];
    for (const Setup& setup : views_[i].slices) {
      const std::vector<TensorSpec> parts = block.spec(setup, ops_).tensors;
      auto& forward = kept.forward_slices.emplace_back();
      auto& backward = kept.backward_slices.emplace_back();
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const auto part = [&](const Tensor& whole) {
          return part_of_slice(whole, tensors[t], parts[t], setup, block.name());
        };
        forward.push_back(part(kept.forward[t]));
        backward.push_back(part(kept.backward[t]));
      }
    }
  }
}

Tensor Replica::rows_of(const Tensor& whole, const plan::BufferCounts& use) const {
  if (use.slice == plan::BufferCounts::kAllSlices || !ops::is_given(whole)) return whole;
  const Setup& setup = views_.back().slices.at(static_cast<std::size_t>(use.slice));
  return whole.slice(setup.slice.first, setup.shape.sequence);
}

Batch Replica::part_of(const Batch& batch, const plan::BufferCounts& use) const {
  if (use.slice == plan::BufferCounts::kAllSlices) return batch;
  const Setup& setup = views_.back().slices.at(static_cast<std::size_t>(use.slice));
  const auto rows = [&](const Tensor& field) {
    if (!ops::is_given(field)) return field;
    return field.reshaped({setup.slice.of})
        .slice(setup.slice.first, setup.shape.sequence)
        .reshaped({1, setup.shape.sequence});
  };
  Batch part = batch;
  part.shape = setup.shape;
  part.tokens = rows(batch.tokens);
  part.targets = rows(batch.targets);
  part.types = rows(batch.types);
  return part;
}

}  // namespace lockstep::nn
