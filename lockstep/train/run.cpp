#include "lockstep/train/run.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/resident.h"
#include "lockstep/train/batch_source.h"
#include "lockstep/train/nonfinite.h"
#include "lockstep/train/peak.h"
#include "lockstep/train/run_folder.h"
#include "lockstep/train/run_start.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {
namespace {

// All observers as one.
class Audience {
 public:
  explicit Audience(std::span<const std::unique_ptr<RunObserver>> observers)
      : observers_(observers) {}

  void begin(const RunFacts& facts) const {
    for (const auto& one : observers_) one->begin(facts);
  }
  void step(const StepRecord& record) const {
    for (const auto& one : observers_) one->step(record);
  }
  void sample(std::int64_t step, const std::string& text) const {
    for (const auto& one : observers_) one->sample(step, text);
  }
  void notice(const std::string& text) const {
    for (const auto& one : observers_) one->notice(text);
  }
  void warning(const std::string& text) const {
    for (const auto& one : observers_) one->warning(text);
  }
  void end(const RunEnd& end) const {
    for (const auto& one : observers_) one->end(end);
  }

 private:
  std::span<const std::unique_ptr<RunObserver>> observers_;
};

class Run {
 public:
  Run(RunOptions& options, const Config& config, const Audience& audience, const StopSignal& stop)
      : options_(options),
        config_(config),
        audience_(audience),
        stop_(stop),
        folder_(options.dir),
        checkpoints_(folder_.path()),
        dataset_(open_data()),
        ops_(make_cpu_ops(threads_of(options.train))),
        trainer_(options.train, *ops_),
        source_(make_source()) {
    resumed_ = start();
    folder_.write_config(config_.resolved());
  }

  RunOutcome go() {
    audience_.begin(facts());
    if (resumed_) audience_.notice(fmt::format("goes on after step {}", trainer_.state().steps));
    while (trainer_.state().steps < options_.steps) {
      if (stop_.came()) return interrupted();
      step();
    }
    if (!saved_) save();
    return RunOutcome::kFinished;
  }

 private:
  Dataset open_data() {
    Dataset dataset = open_dataset(options_.data, folder_.data(), [&](std::string_view text) {
      audience_.notice(std::string(text));
    });
    fill_from_data(options_.train, dataset);
    return dataset;
  }

  std::unique_ptr<BatchSource> make_source() {
    return make_batch_source(dataset_, {.objective = objective_of(options_.train),
                                        .shape = trainer_.replica().setup().shape,
                                        .vocabulary = vocabulary_of(options_.train),
                                        .seed = static_cast<std::uint64_t>(options_.train.seed)});
  }

  // Whether there was a checkpoint.
  bool start() {
    const auto warn = [&](const std::string& text) { audience_.warning(text); };
    if (!options_.resume && !checkpoints_.steps().empty()) {
      fail(ErrorCode::kInvalidArgument,
           "run.resume is false, but run.dir = {} has checkpoints; choose another folder",
           folder_.path().string());
    }
    if (const auto state = checkpoints_.restore(trainer_.replica(), warn)) {
      trainer_.set_state(*state);
      saved_ = true;
      return true;
    }
    if (!options_.from.empty())
      load_parameters(options_.train, options_.from, trainer_.replica(), warn);
    return false;
  }

  RunFacts facts() {
    const nn::MemoryPlan& plan = trainer_.replica().plan();
    const BatchChoice batch = solved(options_.train.batch);
    RunFacts facts;
    facts.folder = folder_.path();
    facts.model = trainer_.replica().model().name();
    facts.precision = plan::name(options_.train.precision);
    facts.hardware = ops_->name();
    facts.config = config_.resolved();
    facts.data = describe(options_.data, dataset_, *source_);
    facts.parameters = plan.flat.count();
    facts.step_flops = (plan.flops.forward + plan.flops.backward) * batch.accumulation;
    facts.peak_flops = measure_peak_flops(*ops_, plan.setup.dtype);
    reset_peak_resident();  // its memory is none of the run's
    facts.steps = options_.steps;
    facts.first_step = trainer_.state().steps + 1;
    facts.memory = class_lines(plan);
    facts.memory_bytes = plan.bytes();
    return facts;
  }

  void step() {
    const auto begin = SteadyClock::now();
    const BatchChoice batch = solved(options_.train.batch);
    const auto first = static_cast<std::uint64_t>(trainer_.state().steps) *
                       static_cast<std::uint64_t>(batch.sequences);
    const auto micro_batches = source_->training(first, batch.accumulation);
    StepRecord record;
    record.data_seconds = seconds_since(begin);
    record.metrics = trainer_.step(micro_batches);
    saved_ = false;
    check_finite(record.metrics, micro_batches);
    const std::int64_t done = record.metrics.step;
    const bool last = done == options_.steps;
    if (last || is_due(options_.validate_every, done)) validate(record);
    record.checkpoint_seconds = std::exchange(saving_seconds_, 0);
    record.memory_bytes = peak_resident_bytes();
    // Before the checkpoint: what one holds has been told, even if the process is killed now.
    audience_.step(record);
    if (is_due(options_.checkpoint.every, done) && !last) save();
    if (is_due(options_.sample.every, done) || (last && options_.sample.every > 0)) {
      write_sample(done);
    }
  }

  static bool is_due(int every, std::int64_t step) { return every > 0 && step % every == 0; }

  // A loss or a gradient that is no number has changed nothing, but would come again.
  void check_finite(const StepMetrics& metrics, std::span<const nn::Batch> micro_batches) {
    constexpr double kLeastScale = 0x1p-10;
    const auto& scale = trainer_.state().loss_scale;
    if (std::isfinite(metrics.loss)) {
      if (!metrics.skipped) return;
      if (scale && scale->scale > kLeastScale) return;
    }
    const std::string culprit =
        first_nonfinite(trainer_.replica(), micro_batches,
                        {.seed = static_cast<std::uint64_t>(options_.train.seed),
                         .step = static_cast<std::uint64_t>(metrics.step),
                         .loss_factor = 1.0f / static_cast<float>(metrics.tokens)});
    const auto steps = checkpoints_.steps();
    fail(ErrorCode::kInvalidArgument,
         "step {} has a loss of {} and a gradient norm of {}: {}. The parameters are as they were "
         "before the step; {}. A lower schedule.rate, a longer schedule.warmup or "
         "train.precision = \"f32\" may help",
         metrics.step, metrics.loss, metrics.gradient_norm, culprit,
         steps.empty() ? "nothing has been saved yet"
                       : fmt::format("the last good checkpoint is {}",
                                     checkpoints_.path(steps.front()).string()));
  }

  void validate(StepRecord& record) {
    const auto begin = SteadyClock::now();
    std::uint64_t batches = source_->validation_batches();
    if (options_.validate_batches > 0) {
      batches = std::min(batches, static_cast<std::uint64_t>(options_.validate_batches));
    }
    double losses = 0;
    std::int64_t targets = 0;
    for (std::uint64_t i = 0; i < batches && !stop_.came(); ++i) {
      const nn::Batch batch = source_->validation(i);
      const Tensor rows = trainer_.replica().evaluate(batch);
      ops_->synchronize();
      losses += nn::sum_of(rows);
      targets += nn::count_targets(batch);
    }
    if (targets > 0) record.validation_loss = losses / static_cast<double>(targets);
    record.validation_seconds = seconds_since(begin);
  }

  // A full disk does not end a run: what was saved before is still there.
  void save() {
    const auto begin = SteadyClock::now();
    try {
      checkpoints_.save(trainer_.replica(),
                        {.state = trainer_.state(),
                         .config = config_.resolved(),
                         .tokenizer = dataset_.tokenizer ? dataset_.tokenizer->json() : ""},
                        options_.checkpoint);
      saved_ = true;
    } catch (const Error& error) {
      const auto steps = checkpoints_.steps();
      audience_.warning(fmt::format(
          "the checkpoint of step {} could not be saved: {}. {}", trainer_.state().steps,
          error.what(),
          steps.empty() ? "There is none yet"
                        : fmt::format("The one of step {} is as it was", steps.front())));
    }
    saving_seconds_ += seconds_since(begin);
  }

  RunOutcome interrupted() {
    if (!saved_) save();
    if (saved_) {
      audience_.notice(fmt::format("{}: saved after step {}; the same command goes on from there",
                                   stop_.name(), trainer_.state().steps));
    }
    return RunOutcome::kInterrupted;
  }

  void write_sample(std::int64_t step) {
    if (!dataset_.tokenizer || objective_of(options_.train) != Objective::kNextToken) return;
    audience_.sample(step, sample_text(trainer_.replica(), *dataset_.tokenizer, options_));
  }

  RunOptions& options_;
  const Config& config_;
  const Audience& audience_;
  const StopSignal& stop_;
  RunFolder folder_;
  CheckpointFolder checkpoints_;
  Dataset dataset_;
  std::unique_ptr<Ops> ops_;
  Trainer trainer_;
  std::unique_ptr<BatchSource> source_;
  bool resumed_ = false;
  bool saved_ = false;         // what is now
  double saving_seconds_ = 0;  // since the last step was told of
};

}  // namespace

RunOutcome run_training(RunOptions& options, const Config& config,
                        std::span<const std::unique_ptr<RunObserver>> observers,
                        const StopSignal& stop) {
  const auto begin = SteadyClock::now();
  complete(options);
  const Audience audience(observers);
  Run run(options, config, audience, stop);
  RunEnd end;
  try {
    const RunOutcome outcome = run.go();
    end.reason =
        outcome == RunOutcome::kFinished ? RunEnd::Reason::kFinished : RunEnd::Reason::kInterrupted;
    end.seconds = seconds_since(begin);
    audience.end(end);
    return outcome;
  } catch (const std::exception& error) {
    end = {.reason = RunEnd::Reason::kFailed,
           .message = error.what(),
           .seconds = seconds_since(begin)};
    audience.end(end);
    throw;
  }
}

}  // namespace lockstep::train
