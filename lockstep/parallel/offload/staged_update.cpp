#include "lockstep/parallel/offload/staged_update.h"

#include <algorithm>
#include <limits>

#include "lockstep/parallel/offload/local_update.h"

namespace lockstep::parallel {

bool StagedUpdate::serves(const nn::MemoryPlan& plan) {
  const nn::Tiers& tiers = plan.tiers;
  return tiers.optimizer == Tier::kHost && tiers.gradients != Tier::kFile &&
         tiers.parameters != Tier::kFile;
}

StagedUpdate::StagedUpdate(nn::Replica& replica, Ops& ops)
    : replica_(replica),
      ops_(ops),
      rounds_(replica.setup().dtype != DType::kF32),
      staged_gradients_(replica.staged_gradients()),
      staged_parameters_(replica.staged_parameters()) {
  const std::size_t staged = 2 * replica.plan().staged_elements;
  const std::size_t most = staged == 0 ? std::numeric_limits<std::size_t>::max()
                                       : std::max<std::size_t>(staged / kSlots, 1);
  for (std::size_t block = 0; block < replica.flat().blocks(); ++block) {
    const nn::FlatRange mine = replica.my_range(block);
    bool is_new = true;
    for (const nn::FlatRun& run : replica.flat().runs(block)) {
      const std::size_t end = std::min(run.range.end(), mine.end());
      for (std::size_t first = std::max(run.range.first, mine.first); first < end;) {
        if (is_new || chunks_.back().range.elements == most) {
          chunks_.push_back({.block = block, .range = {first - mine.first, 0}, .runs = {}});
        }
        is_new = false;
        Chunk& chunk = chunks_.back();
        const std::size_t count = std::min(most - chunk.range.elements, end - first);
        chunk.runs.push_back({{chunk.range.elements, count}, run.decays});
        chunk.range.elements += count;
        first += count;
      }
    }
  }
  if (staged == 0) return;
  down_.emplace(replica.ops().device());
  up_.emplace(replica.ops().device());
}

void StagedUpdate::begin(const UpdateRequest& request, double gradient_norm) {
  request_.emplace(request);
  gradient_norm_ = gradient_norm;
  fetched_ = 0;
  next_ = 0;
}

Tensor StagedUpdate::slot(const Tensor& staged, std::size_t chunk) const {
  const auto each = static_cast<std::int64_t>(staged.elements() / kSlots);
  return staged.reshaped({static_cast<std::int64_t>(staged.elements())})
      .slice(static_cast<std::int64_t>(chunk % kSlots) * each,
             static_cast<std::int64_t>(chunks_[chunk].range.elements));
}

nn::States StagedUpdate::states_of(const Chunk& chunk) const {
  return replica_.mine(chunk.block).slice(chunk.range);
}

// The slot's last chunk was updated.
void StagedUpdate::fetch(std::size_t chunk) {
  if (!down_) return;
  const nn::States states = states_of(chunks_[chunk]);
  const bool reads_parameters = ops::is_given(staged_parameters_) && !rounds_;
  if (reads_parameters) down_->wait(left_[chunk % kSlots]);
  down_->run([this, chunk, states, reads_parameters] {
    if (ops::is_given(staged_gradients_)) copy(slot(staged_gradients_, chunk), states.gradients);
    if (reads_parameters) copy(slot(staged_parameters_, chunk), states.parameters);
  });
  came_[chunk % kSlots] = down_->record();
}

void StagedUpdate::update_chunk(std::size_t chunk) {
  const std::size_t at = chunk % kSlots;
  came_[at].wait();
  left_[at].wait();
  const nn::States there = states_of(chunks_[chunk]);
  nn::States states = there;
  if (ops::is_given(staged_gradients_)) states.gradients = slot(staged_gradients_, chunk);
  if (ops::is_given(staged_parameters_)) {
    states.parameters = slot(staged_parameters_, chunk);
    if (!rounds_) states.master = states.parameters;
  }
  for (const Run& run : chunks_[chunk].runs) {
    update_elements(ops_, *request_, gradient_norm_, rounds_, states.slice(run.range), run.decays);
  }
  ops_.synchronize();
  if (!ops::is_given(staged_parameters_)) return;
  up_->run([to = there.parameters, from = states.parameters] { copy(to, from); });
  left_[at] = up_->record();
}

Event StagedUpdate::update(std::size_t block) {
  replica_.before_change(block);
  Event done;
  for (; next_ < chunks_.size() && chunks_[next_].block == block; ++next_) {
    const std::size_t ahead = std::min(next_ + kSlots, chunks_.size());
    while (fetched_ < ahead) fetch(fetched_++);
    update_chunk(next_);
    done = left_[next_ % kSlots];
  }
  return done;
}

void StagedUpdate::synchronize() {
  if (up_) up_->synchronize();
}

void StagedUpdate::settle() noexcept {
  for (std::optional<Stream>* const stream : {&down_, &up_}) {
    try {
      if (*stream) (*stream)->synchronize();
    } catch (...) {  // of the copies of an update that has ended with an error
    }
  }
}

}  // namespace lockstep::parallel
