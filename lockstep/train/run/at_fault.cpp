#include "lockstep/train/run/at_fault.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/offload/early_update.h"
#include "lockstep/train/run/nonfinite.h"

namespace lockstep::train {
namespace {

// -nan is nan.
double without_sign(double value) { return std::isnan(value) ? std::abs(value) : value; }

// The earliest finding, of the first rank that has it.
std::string culprit_of(RunAtFault& run, std::span<const nn::Batch> micro_batches,
                       const nn::MicroBatch& first) {
  const Nonfinite mine =
      first_nonfinite(run.replica, run.strategy, run.group, micro_batches, first);
  const bool together = run.strategy.in_lockstep();
  const std::vector<std::string> all =
      together ? run.group.texts(mine.text) : std::vector{mine.text};
  const std::vector<double> orders =
      together ? run.group.numbers(std::span(&mine.order, 1)) : std::vector{mine.order};
  std::size_t found = all.size();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].empty()) continue;
    if (found == all.size() || orders[i] < orders[found]) found = i;
  }
  if (found == all.size()) return "no block does so when the step is repeated";
  return all.size() > 1 ? fmt::format("{} (at rank {})", all[found], found) : all[found];
}

// The last good checkpoint, where those of `bad` steps and more hold parameters that give no
// numbers; with how to go back to it, where it is not the newest.
std::string way_back(const CheckpointFolder& checkpoints, std::int64_t bad) {
  const std::vector<std::int64_t> steps = checkpoints.steps();
  if (steps.empty()) return "nothing has been saved yet";
  const auto path = [&](std::int64_t step) { return checkpoints.path(step).string(); };
  const auto good = std::ranges::find_if(steps, [&](std::int64_t step) { return step < bad; });
  if (good == steps.begin()) return fmt::format("the last good checkpoint is {}", path(*good));
  std::vector<std::string> spoiled;
  for (auto step = steps.begin(); step != good; ++step) spoiled.push_back(path(*step));
  return fmt::format(
      "later checkpoints hold non-finite parameters, and the run would fail again from them: "
      "remove {}, and the run {}",
      fmt::join(spoiled, " and "),
      good == steps.end()
          ? "starts from scratch"
          : fmt::format("continues from the last good checkpoint, {}", path(*good)));
}

std::string what_may_help(const TrainOptions& options) {
  const bool f32 = options.precision == plan::Precision::kF32;
  return fmt::format("A lower optimizer.learning_rate{} a longer schedule.warmup_steps{} may help",
                     f32 ? " or" : ",", f32 ? "" : " or train.precision = \"f32\"");
}

}  // namespace

void fail_step(RunAtFault run, const StepMetrics& metrics, std::span<const nn::Batch> micro_batches,
               std::uint64_t first_sequence) {
  const std::string culprit =
      culprit_of(run, micro_batches,
                 {.seed = static_cast<std::uint64_t>(run.options.seed),
                  .step = static_cast<std::uint64_t>(metrics.step),
                  .first_sequence = first_sequence,
                  .loss_factor = 1.0f / static_cast<float>(metrics.tokens)});
  const bool early = run.strategy.name() != "ddp" &&
                     parallel::EarlyUpdate::can_be(run.replica.plan(), run.options.optimizer);
  // With a finite loss only the gradient is at fault.
  const bool is_stale = !metrics.costs.empty() && metrics.costs.front().staleness > 0 &&
                        parallel::keeps_two_versions(run.options.parallel);
  const int lag = is_stale ? 2 : 1;
  const std::int64_t bad = std::isfinite(metrics.loss) ? metrics.step : metrics.step - lag;
  fail(ErrorCode::kNonFinite,
       "step {} has a loss of {} and a gradient norm of {}: {}. The parameters {} as they were "
       "before the step; {}. {}",
       metrics.step, without_sign(metrics.loss), without_sign(metrics.gradient_norm), culprit,
       early ? "of blocks that were updated during backward are not" : "are",
       way_back(run.checkpoints, bad), what_may_help(run.options));
}

void fail_validation(RunAtFault run, std::int64_t step, double loss,
                     std::span<const nn::Batch> micro_batches) {
  const std::string culprit = culprit_of(run, micro_batches,
                                         {.seed = static_cast<std::uint64_t>(run.options.seed),
                                          .step = static_cast<std::uint64_t>(step)});
  fail(ErrorCode::kNonFinite,
       "the validation after step {} has a loss of {}: {}. The parameters are those of that step; "
       "{}. {}",
       step, without_sign(loss), culprit, way_back(run.checkpoints, step),
       what_may_help(run.options));
}

}  // namespace lockstep::train
