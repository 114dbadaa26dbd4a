#include "lockstep/train/observe/report/history.h"

#include <algorithm>
#include <cmath>

#include "lockstep/train/observe/metrics_file.h"

namespace lockstep::train {
namespace {

// The half-life of the smoothed loss, as a share of the run.
constexpr double kHalfLife = 0.005;

double or_zero(double value) { return std::isfinite(value) ? value : 0; }

void add_workers(const WorkerCosts& workers, const StepMetrics& metrics, RunHistory& history) {
  constexpr double kOfASecond = 1000;  // milliseconds
  const auto step = static_cast<double>(metrics.step);
  ++history.shared_steps;
  history.waiting_seconds += std::max(0.0, or_zero(metrics.seconds) - workers.compute_seconds);
  history.communication_seconds += workers.communication_seconds;
  history.exposed_seconds += workers.exposed_seconds;
  history.longest_exposed_seconds += workers.longest_exposed_seconds;
  history.bytes_sent += workers.bytes_sent;
  history.bytes_across += workers.bytes_across;
  history.staleness += workers.staleness;
  history.most_stale = std::max(history.most_stale, workers.most_stale);
  if (workers.slowest_rank >= 0) ++history.slowest[workers.slowest_rank];
  history.compute.add(step, workers.compute_seconds * kOfASecond);
  history.communication.add(step, workers.communication_seconds * kOfASecond);
  history.exposed.add(step, workers.exposed_seconds * kOfASecond);
}

}  // namespace

HistoryBuilder::HistoryBuilder(std::int64_t steps, std::int64_t first_step)
    : mean_(std::max(1.0, kHalfLife * static_cast<double>(steps))), first_step_(first_step) {}

void HistoryBuilder::add(const StepRecord& record) {
  RunHistory& history = history_;
  const StepMetrics& metrics = record.metrics;
  const auto step = static_cast<double>(metrics.step);
  if (history.steps++ == 0) history.first_step = metrics.step;
  history.last_step = metrics.step;
  history.skipped += metrics.skipped ? 1 : 0;
  history.tokens += metrics.tokens;
  history.memory_bytes = std::max(history.memory_bytes, record.memory_bytes);
  history.last_loss = metrics.loss;
  if (record.validation_loss) {
    const RunHistory::Validation taken{metrics.step, *record.validation_loss};
    history.last_validation = taken;
    const auto& best = history.best_validation;
    const bool better = !best || taken.loss < best->loss;
    if (better && std::isfinite(taken.loss)) history.best_validation = taken;
    history.validation_loss.add(step, taken.loss);
  }
  const double before = history.recorded_seconds();
  history.compute_seconds += or_zero(metrics.seconds);
  history.data_seconds += record.data_seconds;
  history.checkpoint_seconds += record.checkpoint_seconds;
  history.background_seconds += record.background_seconds;
  history.validation_seconds += record.validation_seconds;
  if (metrics.step >= first_step_) {
    history.seconds_of_this_process += history.recorded_seconds() - before;
  }
  history.loss.add(step, metrics.loss);
  const CurvePoint smoothed = mean_.add(step, metrics.loss);
  history.smoothed_loss.add(smoothed.step, smoothed.value);
  history.tokens_per_second.add(step, metrics.tokens_per_second());
  if (metrics.has_norm) history.gradient_norm.add(step, metrics.gradient_norm);
  history.rate.add(step, metrics.rate);
  history.loss_scale.add(step, metrics.loss_scale);
  history.scaled |= metrics.loss_scale != 1;
  if (record.workers) add_workers(*record.workers, metrics, history);
}

HistoryBuilder read_history(const std::filesystem::path& folder, std::int64_t steps,
                            std::int64_t first_step) {
  HistoryBuilder builder(steps, first_step);
  read_metrics(folder, [&](const StepRecord& record) { builder.add(record); });
  return builder;
}

}  // namespace lockstep::train
