// Where the blocks of a replica find their tensors.
#include "lockstep/nn/parameters/seed.h"
#include "lockstep/nn/replica/replica.h"

namespace lockstep::nn {
namespace {

// Where a parameter lies in its block's range of a flat buffer.
FlatParameter within(const FlatParameter& parameter, FlatRange block) {
  FlatParameter moved = parameter;
  moved.offset -= block.first;
  return moved;
}

}  // namespace

Tensor Replica::in_place(const Tensor& tensor) const {
  return {tensor.data(), tensor.dtype(), tensor.shape(), ops_.device()};
}

Tensor Replica::parameter_at(int step, const FlatParameter* place) const {
  if (place == nullptr) return {};
  if (!plan_.gathers_parameters()) {
    return FlatParameters::view(in_place(states_.parameters), *place);
  }
  for (std::size_t i = 0; i < plan_.gathers.size(); ++i) {
    const Gather& gather = plan_.gathers[i];
    if (gather.unit != place->block || step < gather.needed || step > gather.last) continue;
    return FlatParameters::view(gathered(i), within(*place, plan_.flat.range(gather.unit)));
  }
  return {};  // this step does not read it
}

Tensor Replica::previous_at(const FlatParameter* place) const {
  if (place == nullptr || !ops::is_given(states_.previous)) return {};
  return FlatParameters::view(in_place(states_.previous), *place);
}

Tensor Replica::gradient_at(const FlatParameter* place) const {
  if (place == nullptr) return {};
  return FlatParameters::view(gradients_written(place->block),
                              within(*place, plan_.flat.range(place->block)));
}

void Replica::make_views() {
  const Setup& setup = plan_.setup;
  const int steps = 2 * static_cast<int>(model_.size());
  views_.resize(model_.size());
  std::int64_t scaled = 0;
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const BlockSpec& spec = plan_.specs[i];
    const BlockRequests& requests = plan_.blocks[i];
    const Block& block = model_.block(i);
    BlockViews& views = views_[i];
    for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
      const FlatParameter* place = plan_.flat.place(i, p);
      const int forward = static_cast<int>(i);
      views.parameters.push_back(parameter_at(forward, place));
      views.parameters_backward.push_back(parameter_at(steps - 1 - forward, place));
      views.previous.push_back(previous_at(place));
      views.gradients.push_back(gradient_at(place));
    }
    if (const auto count = static_cast<std::int64_t>(spec.scaled.size()); count > 0) {
      views.scaling = scaling_.slice(scaled, count);
      views.amax = amax_.slice(scaled, count);
      scaled += count;
    }
    const auto bytes = static_cast<std::int64_t>(spec.scratch);
    views.scratch_forward = view(requests.scratch_forward, DType::kU8, {bytes});
    views.scratch_backward = view(requests.scratch_backward, DType::kU8, {bytes});
    views.output_gradient = view(requests.output_gradient, setup.dtype, block.output(setup));
    views.setup = setup.of(i);
    for (std::size_t slice = 0; slice < setup.slices.size(); ++slice) {
      views.slices.push_back(views.setup.of_slice(slice));
    }
    views.seed = seed_for(0, block.draws_as());
  }
  make_slots();
  make_messages();
}

void Replica::make_slots() {
  const Setup& setup = plan_.setup;
  const Shape memory = plan_.memory_maker == BlockRequests::kAbsent
                           ? Shape{0}
                           : model_.block(plan_.memory_maker).memory(setup);
  memory_gradient_ = view(plan_.memory_gradient, setup.dtype, memory);
  for (std::size_t s = 0; s <= plan_.more_slots.size(); ++s) {
    const std::vector<BlockRequests>& blocks = s == 0 ? plan_.blocks : plan_.more_slots[s - 1];
    Slot& slot = slots_.emplace_back();
    slot.memory = view(plan_.memories[s], setup.dtype, memory);
    slot.losses = view(plan_.losses[s], DType::kF32, {setup.shape.tokens()});
    for (std::size_t i = 0; i < model_.size(); ++i) {
      const std::vector<TensorSpec>& tensors = plan_.specs[i].tensors;
      KeptViews& kept = slot.blocks.emplace_back();
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        kept.forward.push_back(view(blocks[i].forward[t], tensors[t].dtype, tensors[t].shape));
        kept.backward.push_back(view(blocks[i].backward[t], tensors[t].dtype, tensors[t].shape));
      }
      const Shape output = model_.block(i).output(setup);
      kept.output = view(blocks[i].output, setup.dtype, output);
      kept.output_backward = view(blocks[i].output_backward, setup.dtype, output);
      kept.host_counts.resize(1 + views_[i].slices.size());
    }
    make_slices(slot);
  }
}

void Replica::make_messages() {
  const Setup& setup = plan_.setup;
  for (std::size_t c = 0; c < model_.chunks().size(); ++c) {
    const Chunk& chunk = model_.chunks()[c];
    const Shape none{0};
    const Shape in = chunk.before == nullptr ? none : chunk.before->output(setup);
    const Shape out = model_.block(chunk.end - 1).output(setup);
    const bool makes_memory =
        plan_.memory_maker != BlockRequests::kAbsent && chunk.has(plan_.memory_maker);
    const Shape memory = chunk.maker != nullptr ? chunk.maker->memory(setup)
                         : makes_memory         ? model_.block(plan_.memory_maker).memory(setup)
                                                : none;
    const auto flows = [&](const std::vector<FlowRequests>& requests, const Shape& x) {
      std::vector<Flow> views;
      for (const FlowRequests& one : requests) {
        views.push_back(
            {.x = view(one.x, setup.dtype, x), .memory = view(one.memory, setup.dtype, memory)});
      }
      return views;
    };
    const ChunkRequests& requests = plan_.chunks[c];
    messages_.push_back({.inputs = flows(requests.inputs, in),
                         .gradients = flows(requests.gradients, out),
                         .outputs = flows(requests.outputs, out),
                         .input_gradients = flows(requests.input_gradients, in),
                         .weights = {}});
    for (const std::vector<std::size_t>& blocks : requests.weight_inputs) {
      std::vector<WeightGradients>& weights = messages_.back().weights.emplace_back();
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const auto bytes = static_cast<std::int64_t>(plan_.specs[chunk.first + i].weight_inputs);
        weights.emplace_back(view(blocks[i], DType::kU8, {bytes}));
      }
    }
  }
  copies_.resize(model_.chunks().size());
  for (std::size_t copy = 0; model_.is_copy(copy); ++copy) {
    for (std::size_t block = model_.size(); block-- > 0;) {
      if (model_.is_copy(block)) continue;
      for (std::size_t p = 0; p < plan_.specs[block].parameters.size(); ++p) {
        const FlatParameter* place = plan_.flat.place(block, p);
        if (place == nullptr || place->block != copy) continue;
        // The first reader finishes backward last.
        for (std::vector<std::size_t>& others : copies_) std::erase(others, copy);
        copies_[chunk_index(block)].push_back(copy);
      }
    }
  }
}

std::size_t Replica::chunk_index(std::size_t block) const {
  return static_cast<std::size_t>(&model_.chunk_of(block) - model_.chunks().data());
}

// The encoder's memory behind a block, and its gradient there.
Tensor Replica::memory_after(std::size_t block, const plan::BufferCounts& use) const {
  const std::size_t c = chunk_index(block);
  const Chunk& chunk = model_.chunks()[c];
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  if (chunk.maker != nullptr) return messages_[c].inputs[at(use.inputs)].memory;
  const bool is_made = chunk.has(plan_.memory_maker) && block >= plan_.memory_maker;
  return is_made ? slots_[at(use.slots)].memory : Tensor();
}

Tensor Replica::memory_gradient_after(std::size_t block, const plan::BufferCounts& use) const {
  const std::size_t c = chunk_index(block);
  const Chunk& chunk = model_.chunks()[c];
  const bool is_made = chunk.has(plan_.memory_maker) && block >= plan_.memory_maker;
  if (chunk.maker == nullptr && !is_made) return {};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  if (!chunk.makes_losses) return messages_[c].gradients[at(use.gradients)].memory;
  if (chunk.maker == nullptr) return memory_gradient_;
  return messages_[c].gradients[at(use.input_gradients)].memory;
}

Flow Replica::input(std::size_t chunk, const plan::BufferCounts& use) const {
  if (model_.chunks().at(chunk).before == nullptr) return {};
  const Flow& flow = messages_[chunk].inputs.at(static_cast<std::size_t>(use.inputs));
  return {.x = rows_of(flow.x, use), .memory = flow.memory};
}

Flow Replica::output(std::size_t chunk, const plan::BufferCounts& use) const {
  return out_of(model_.chunks().at(chunk).end - 1, use);
}

Flow Replica::output_gradient(std::size_t chunk, const plan::BufferCounts& use) const {
  return dout_of(model_.chunks().at(chunk).end - 1, use);
}

Flow Replica::input_gradient(std::size_t chunk, const plan::BufferCounts& use) const {
  return din_of(model_.chunks().at(chunk).first, use);
}

Flow Replica::in_of(std::size_t block, const plan::BufferCounts& use, bool backward) const {
  const std::size_t c = chunk_index(block);
  if (block == model_.chunks()[c].first) return input(c, use);
  const KeptViews& before = slots_[static_cast<std::size_t>(use.slots)].blocks[block - 1];
  return {.x = rows_of(backward ? before.output_backward : before.output, use),
          .memory = memory_after(block - 1, use)};
}

Flow Replica::out_of(std::size_t block, const plan::BufferCounts& use) const {
  const std::size_t c = chunk_index(block);
  const Chunk& chunk = model_.chunks()[c];
  const bool leaves = block + 1 == chunk.end && !chunk.makes_losses;
  const Tensor& x = leaves ? messages_[c].outputs[static_cast<std::size_t>(use.outputs)].x
                           : slots_[static_cast<std::size_t>(use.slots)].blocks[block].output;
  return {.x = rows_of(x, use), .memory = memory_after(block, use)};
}

Flow Replica::dout_of(std::size_t block, const plan::BufferCounts& use) const {
  const std::size_t c = chunk_index(block);
  const Chunk& chunk = model_.chunks()[c];
  const bool comes = block + 1 == chunk.end && !chunk.makes_losses;
  const Tensor& x = comes ? messages_[c].gradients[static_cast<std::size_t>(use.gradients)].x
                          : views_[block].output_gradient;
  return {.x = rows_of(x, use), .memory = memory_gradient_after(block, use)};
}

Flow Replica::din_of(std::size_t block, const plan::BufferCounts& use) const {
  const std::size_t c = chunk_index(block);
  const Chunk& chunk = model_.chunks()[c];
  if (block != chunk.first) return dout_of(block - 1, use);
  if (chunk.before == nullptr) return {};
  const Tensor& x = messages_[c].input_gradients[static_cast<std::size_t>(use.input_gradients)].x;
  return {.x = rows_of(x, use),
          .memory = chunk.maker == nullptr ? Tensor() : memory_gradient_after(block, use)};
}

}  // namespace lockstep::nn
