#include "lockstep/train/run/step_batches.h"

#include <utility>

namespace lockstep::train {

std::span<const nn::Batch> StepBatches::read(const parallel::Share& share) {
  if (const auto ahead = std::exchange(ahead_, std::nullopt); ahead && ahead->share == share) {
    return ahead->micro_batches;
  }
  strategy_.trace().begin_step(share.step);
  const parallel::TraceScope scope(strategy_.trace(),
                                   {.lane = parallel::TraceLane::kWaiting, .kind = "data"});
  return training(share);
}

// Where workers do not wait for each other, nobody knows what this one computes next.
std::span<const nn::Batch> StepBatches::read_after(const parallel::Share& share) {
  if (!strategy_.in_lockstep() || share.step >= last_step_) return {};
  parallel::Share next = share;
  ++next.step;
  ahead_ = {next, training(next)};
  return ahead_->micro_batches;
}

std::optional<Trainer::StepInput> StepBatches::input_after(const parallel::Share& share) {
  const std::span<const nn::Batch> micro_batches = read_after(share);
  if (micro_batches.empty()) return std::nullopt;
  return Trainer::StepInput{micro_batches, ahead_->share};
}

std::span<const nn::Batch> StepBatches::read_again(const parallel::Share& share) {
  ahead_.reset();
  return training(share);
}

std::span<const nn::Batch> StepBatches::training(const parallel::Share& share) {
  const std::int64_t first =
      (share.step - 1) * plan_.sequences + share.first_micro_batch * plan_.micro;
  BatchSource& source = second_ != nullptr && share.step % 2 == 0 ? *second_ : source_;
  return source.training(static_cast<std::uint64_t>(first), static_cast<int>(share.micro_batches));
}

}  // namespace lockstep::train
