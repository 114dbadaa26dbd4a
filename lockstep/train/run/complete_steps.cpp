#include "lockstep/train/run/complete_steps.h"

#include <utility>

namespace lockstep::train {

bool is_complete_after(const RunOptions& options, std::int64_t step) {
  const auto is_due = [&](int every) { return every > 0 && step % every == 0; };
  return step == options.steps || is_due(options.validate_every) ||
         is_due(options.checkpoint.every) || is_due(options.sample.every);
}

std::optional<std::vector<StepMetrics>> complete_steps(Trainer& trainer, StepBatches& batches,
                                                       const RunOptions& options,
                                                       std::span<const nn::Batch> micro_batches,
                                                       const parallel::Share& share, bool stops) {
  if (trainer.is_late()) {
    std::optional<Trainer::StepInput> next;
    if (!is_complete_after(options, share.step)) next = batches.input_after(share);
    return trainer.step_late({micro_batches, share}, next, stops);
  }
  auto metrics =
      trainer.step(micro_batches, share, stops, [&] { return batches.read_after(share); });
  if (!metrics) return std::nullopt;
  return std::vector{std::move(*metrics)};
}

}  // namespace lockstep::train
