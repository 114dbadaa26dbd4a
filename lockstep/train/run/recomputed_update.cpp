#include "lockstep/train/run/recomputed_update.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/offload/local_update.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/run/mirror.h"

namespace lockstep::train {
namespace {

struct UpdateSample {
  std::size_t block = 0;
  nn::FlatRange range;  // in the whole flat buffer; empty: that worker has nothing of the block
  nn::FlatRange shard;  // of the block, in the same
  std::size_t at = 0;   // of the block in the packed shard, bytes
};

UpdateSample sample_of(const nn::MemoryPlan& plan, int worker, std::uint64_t number) {
  UpdateSample sample;
  const std::size_t blocks = plan.flat.blocks();
  sample.block = static_cast<std::size_t>(number % blocks);
  for (std::size_t block = 0; block < sample.block; ++block) {
    sample.at +=
        plan.shards.of(block, worker).elements * state_count(plan.optimizer) * sizeof(float);
  }
  sample.shard = plan.shards.of(sample.block, worker);
  if (sample.shard.elements == 0) return sample;
  const std::size_t parts = (sample.shard.elements + kSampleElements - 1) / kSampleElements;
  const std::size_t first = static_cast<std::size_t>(number / blocks % parts) * kSampleElements;
  sample.range = {sample.shard.first + first,
                  std::min(kSampleElements, sample.shard.elements - first)};
  return sample;
}

// The states of the sample among the packed ones: master copy, then those of the optimizer.
std::vector<std::span<const std::byte>> states_in(std::span<const std::byte> packed,
                                                  const UpdateSample& sample, std::size_t states) {
  std::vector<std::span<const std::byte>> found;
  for (std::size_t i = 0; i < states; ++i) {
    const std::size_t first = i * sample.shard.elements + (sample.range.first - sample.shard.first);
    found.push_back(
        packed.subspan(sample.at + first * sizeof(float), sample.range.elements * sizeof(float)));
  }
  return found;
}

// The same update as the ward's, of copies of the states before it.
bool has_same_bits(Trainer& trainer, const MirroredUpdate& update, const UpdateSample& sample,
                   const Buffer& gradients) {
  nn::Replica& replica = trainer.replica();
  const nn::MemoryPlan& plan = replica.plan();
  const std::size_t count = state_count(plan.optimizer);
  const auto before = states_in(update.before, sample, count);
  const auto after = states_in(update.after, sample, count);
  const Shape shape{static_cast<std::int64_t>(sample.range.elements)};
  std::vector<Buffer> copies;
  for (const std::span<const std::byte> state : before) {
    copies.emplace_back(state.size());
    std::memcpy(copies.back().data(), state.data(), state.size());
  }
  nn::States states;
  states.gradients = gradients.tensor(plan.setup.gradient, shape);
  states.master = copies[0].tensor(DType::kF32, shape);
  const bool has_moments = plan.optimizer == nn::OptimizerState::kMoments;
  if (has_moments) {
    states.first_moment = copies[1].tensor(DType::kF32, shape);
    states.second_moment = copies[2].tensor(DType::kF32, shape);
  } else if (count == 2) {
    states.velocity = copies[1].tensor(DType::kF32, shape);
  }
  const StepMetrics& metrics = *update.made.metrics;
  const parallel::UpdateRequest request{.optimizer = trainer.options().optimizer,
                                        .updates = update.made.state.updates - 1,
                                        .rate = metrics.rate,
                                        .loss_scale = metrics.loss_scale};
  for (const nn::FlatRun& run : plan.flat.runs(sample.block)) {
    const std::size_t first = std::max(run.range.first, sample.range.first);
    const std::size_t end = std::min(run.range.end(), sample.range.end());
    if (first >= end) continue;
    nn::States part;
    const auto cut = [&](const Tensor& whole) {
      return ops::is_given(whole)
                 ? whole.slice(static_cast<std::int64_t>(first - sample.range.first),
                               static_cast<std::int64_t>(end - first))
                 : Tensor();
    };
    part.gradients = cut(states.gradients);
    part.master = cut(states.master);
    part.first_moment = cut(states.first_moment);
    part.second_moment = cut(states.second_moment);
    part.velocity = cut(states.velocity);
    parallel::update_elements(replica.ops(), request, metrics.gradient_norm, false, part,
                              run.decays);
  }
  replica.ops().synchronize();
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(copies[i].data(), after[i].data(), after[i].size()) != 0) return false;
  }
  return true;
}

}  // namespace

std::optional<std::size_t> differing_update(Communicator& group, Trainer& trainer, int holder,
                                            int ward, const MirroredUpdate& update,
                                            std::uint64_t number) {
  nn::Replica& replica = trainer.replica();
  const nn::MemoryPlan& plan = replica.plan();
  const std::size_t element = size_of(plan.setup.gradient);
  const UpdateSample mine = sample_of(plan, group.rank(), number);
  const UpdateSample wards = sample_of(plan, ward, number);
  const Buffer gradients(wards.range.elements * element);
  std::vector<Work> works;
  if (gradients.bytes() > 0) {
    works.push_back(
        group.start(receive(Data(gradients.data(), gradients.bytes(), DType::kU8), ward)));
  }
  if (mine.range.elements > 0) {
    const Tensor shard = replica.mine(mine.block).gradients;
    const std::byte* const first = shard.data() + (mine.range.first - mine.shard.first) * element;
    works.push_back(
        group.start(send(ConstData(first, mine.range.elements * element, DType::kU8), holder)));
  }
  wait_for_all(works);
  if (gradients.bytes() == 0 || has_same_bits(trainer, update, wards, gradients))
    return std::nullopt;
  return wards.block;
}

}  // namespace lockstep::train
