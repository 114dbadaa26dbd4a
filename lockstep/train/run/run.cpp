#include "lockstep/train/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/system/resident.h"
#include "lockstep/base/text/number.h"
#include "lockstep/parallel/make_strategy.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/dataset/fingerprint.h"
#include "lockstep/train/dataset/shared_data.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/run/algorithm_record.h"
#include "lockstep/train/run/at_fault.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/run/changed_settings.h"
#include "lockstep/train/run/facts.h"
#include "lockstep/train/run/job.h"
#include "lockstep/train/run/mesh_groups.h"
#include "lockstep/train/run/opened_data.h"
#include "lockstep/train/run/owed.h"
#include "lockstep/train/run/resolve.h"
#include "lockstep/train/run/samples.h"
#include "lockstep/train/run/saving.h"
#include "lockstep/train/run/start.h"
#include "lockstep/train/run/trace.h"
#include "lockstep/train/run/unused_settings.h"
#include "lockstep/train/run/validation.h"
#include "lockstep/train/run_folder.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {
namespace {

class Run {
 public:
  // All of it outlives the run.
  struct Parts {
    const ResolvedRun& resolved;
    OpenedData& opened;
    Ops& ops;
    Audience& audience;
    const StopSignal& stop;
    RunGroup group;
    MeshGroups& mesh;
  };

  Run(const Parts& parts, std::unique_ptr<parallel::Strategy> strategy)
      : resolved_(parts.resolved),
        options_(parts.resolved.options()),
        audience_(parts.audience),
        stop_(parts.stop),
        group_(parts.group),
        folder_(parts.opened.folder),
        dataset_(parts.opened.dataset),
        timed_(options_.trace && parts.ops.device() != Device{}
                   ? std::make_unique<TimedOps>(parts.ops)
                   : nullptr),
        ops_(timed_ != nullptr ? *timed_ : parts.ops),
        checkpoints_(options_.dir),
        data_(data_fingerprint(dataset_)),
        strategy_(std::move(strategy)),
        own_trainer_(make_trainer(parts.mesh)),
        trainer_(*own_trainer_),
        source_(make_source(options_.train, dataset_, trainer_.replica().setup().shape)),
        saving_({.options = options_,
                 .config = resolved_.config(),
                 .audience = audience_,
                 .group = group_,
                 .checkpoints = checkpoints_,
                 .dataset = dataset_,
                 .data = data_,
                 .model_tokenizer = parts.opened.model_tokenizer,
                 .strategy = *strategy_,
                 .trainer = trainer_}) {
    source_->limit_validation(validated_sequences(options_));
    if (options_.trace) strategy_->trace().keep(options_.trace_steps);
    if (timed_ != nullptr) trainer_.trace_operations(*timed_);
    group_.check_data(data_);
    check_prompt(options_, dataset_);
    resumed_ = saving_.start();
    group_.together([&] {
      if (!folder_) return;
      algorithms_.emplace(options_.dir);
      if (!resumed_) return;
      changed_ = changed_settings(RunFolder::config_of(options_.dir), resolved_.config());
      other_data_ = changed_data(checkpoints_.data_of(trainer_.state().steps), data_);
    });
  }

  RunOutcome go() {
    Owed owed;
    if (resumed_ && (strategy_->in_lockstep() || trainer_.state().steps == options_.steps)) {
      owed = owed_after(trainer_.state().steps, options_, dataset_, *source_, group_);
    }
    const bool idle =
        resumed_ && trainer_.state().steps >= options_.steps && !owed.validation && !owed.sample;
    if (idle) {
      tell_idle();
    } else {
      group_.together([&] {
        if (folder_) folder_->begin(resolved_.config().resolved());
      });
      audience_.begin(facts());
      tell_beginning(owed);
      catch_up(std::move(owed));
    }
    const parallel::StepPlan plan = step_plan(options_.train.batch);
    RunOutcome outcome = RunOutcome::kFinished;
    const bool has_steps = trainer_.state().steps < options_.steps;
    while (const auto share = strategy_->next(plan, trainer_.state().steps, options_.steps)) {
      if (step(plan, *share)) continue;
      strategy_->stop();
      outcome = RunOutcome::kInterrupted;
      break;
    }
    const bool finished = outcome == RunOutcome::kFinished;
    if (finished && has_steps && !strategy_->in_lockstep() && group_.leads()) finish_shares();
    if (held_) tell_held(finished);
    store_algorithms();
    saving_.finish();
    if (!saving_.saved()) {
      saving_.save();
      saving_.finish();
    }
    // Not before: however long it takes, nothing is lost.
    if (sample_is_left_) write_sample(trainer_.state().steps);
    if (outcome == RunOutcome::kFinished && was_cut()) outcome = RunOutcome::kInterrupted;
    if (options_.trace && !idle) {
      trace_ = write_run_trace(group_, *strategy_, options_.dir, audience_);
    }
    if (outcome == RunOutcome::kInterrupted && saving_.saved()) tell_interrupted();
    // Ranks stay until the leader has saved: an earlier exit would look like a failure.
    if (strategy_->in_lockstep()) group_.barrier();
    saving_.check_saved();
    return outcome;
  }

  // That was written; empty: none.
  const std::filesystem::path& trace() const { return trace_; }

 private:
  // If the run does not fit on one worker, all workers report it. Limits are checked first. Then
  // workers allocate shared memory, and then their own.
  std::unique_ptr<Trainer> make_trainer(MeshGroups& mesh) {
    const TrainOptions& options = resolved_.train();
    const int worker = strategy_->in_lockstep() ? strategy_->worker() : group_.rank();
    group_.together([&] { check_limit(options, plan_run(options, ops_, worker), ops_, worker); });
    std::unique_ptr<Trainer> trainer;
    group_.together([&] { trainer = std::make_unique<Trainer>(options, ops_, *strategy_); });
    trainer->set_axes(mesh.tensor(), mesh.pipeline());
    return trainer;
  }

  RunFacts facts() {
    return run_facts({.resolved = resolved_,
                      .trainer = trainer_,
                      .strategy = *strategy_,
                      .dataset = dataset_,
                      .source = *source_,
                      .ops = ops_,
                      .group = group_});
  }

  void tell_beginning(const Owed& owed) const {
    for (const std::string& text : unused(options_, dataset_, *source_)) audience_.warning(text);
    for (const std::string& text : unused_settings(options_, resolved_.config(), ops_)) {
      audience_.warning(text);
    }
    if (const std::string text = batch_of_ranks(options_.train, resolved_.config());
        !text.empty()) {
      audience_.notice(text);
    }
    if (!other_data_.empty()) audience_.warning(other_data_);
    if (const std::string why = unused_gpu(options_.train); !why.empty()) audience_.notice(why);
    if (!resolved_.memory_choice().empty()) audience_.notice(resolved_.memory_choice());
    if (!changed_.empty())
      audience_.notice("settings that changed since the checkpoint: " + changed_);
    const std::int64_t done = trainer_.state().steps;
    if (owed.validation || owed.sample) {
      audience_.notice(fmt::format("continues after step {}, whose {} is still missing", done,
                                   owed.validation ? "validation" : "sample"));
    } else if (resumed_) {
      audience_.notice(fmt::format("continues after step {}", done));
    }
  }

  // Nothing begins, so nothing in the folder changes.
  void tell_idle() const {
    audience_.notice(
        fmt::format("train.steps = {} are done, so there is nothing to do. With more train.steps "
                    "it continues after step {}",
                    options_.steps, trainer_.state().steps));
  }

  // Whether it was done: not where a worker was asked to end.
  bool step(const parallel::StepPlan& plan, const parallel::Share& share) {
    const auto begin = SteadyClock::now();
    const std::int64_t first =
        (share.step - 1) * plan.sequences + share.first_micro_batch * plan.micro;
    const auto micro_batches = read_batches(static_cast<std::uint64_t>(first), share);
    StepRecord record;
    record.data_seconds = seconds_since(begin);
    auto metrics = trainer_.step(micro_batches, share, stop_.came());
    if (!metrics) return false;
    record.metrics = std::move(*metrics);
    record.workers =
        costs_of_workers(record.metrics.costs, group_.size(), options_.train.parallel.tensor);
    record.metrics.seconds -= saving_.take_waited();
    saving_.changed();
    saving_.look();
    check_finite(record.metrics, micro_batches,
                 static_cast<std::uint64_t>(share.first_micro_batch * plan.micro));
    saving_.found_finite(record.metrics.step - 1);
    if (strategy_->in_lockstep()) {
      tell(record, record.metrics.step - 1, record.metrics.step == options_.steps);
    } else if (group_.leads()) {
      hold(std::move(record));
    }
    return true;
  }

  // Reports a step, after doing what is due since `before`, the last reported step.
  void tell(StepRecord& record, std::int64_t before, bool last) {
    const std::int64_t done = record.metrics.step;
    const auto is_due = [&](int every) { return every > 0 && done / every > before / every; };
    if (last || is_due(options_.validate_every)) validate(record);
    record.checkpoint_seconds = saving_.take_stalled();
    record.background_seconds = saving_.take_background();
    const Device device = ops_.device();
    record.memory_bytes = device == Device{} ? peak_resident_bytes() : peak_memory(device);
    // Before the checkpoint: observers have every step that a checkpoint holds, even if the process
    // is killed now.
    audience_.step(record);
    check_validation(record);
    if (is_due(options_.checkpoint.every) && !last) {
      store_algorithms();
      saving_.save();
    }
    sample_is_left_ = last && options_.sample.every > 0;
    if (is_due(options_.sample.every) && !last) write_sample(done);
  }

  void store_algorithms() {
    if (!algorithms_) return;
    const std::string text = algorithms_->store(ops_.chosen_algorithms());
    if (!text.empty()) audience_.warning(text);
  }

  void catch_up(Owed owed) {
    if (owed.validation) {
      validate(owed.record);
      if (owed.record.validation_loss) audience_.step(owed.record);
      check_validation(owed.record);
    }
    if (owed.sample) write_sample(owed.record.metrics.step);
  }

  // Whether a worker was asked to end in the last validation or sample.
  bool was_cut() {
    const double mine = cut_ ? 1 : 0;
    if (!strategy_->in_lockstep()) return cut_;
    return std::ranges::any_of(group_.numbers(std::span(&mine, 1)), [](double x) { return x > 0; });
  }

  // Where workers do not wait for each other the leader computes only some shares of some steps. It
  // reports a step, with what it knows, when it has reached a later one.
  void hold(StepRecord record) {
    if (!held_) told_ = {record.metrics.step - 1, SteadyClock::now()};
    if (held_ && record.metrics.step > held_->metrics.step) tell_held(false);
    held_ = std::move(record);
  }

  void tell_held(bool last) {
    StepMetrics& metrics = held_->metrics;
    const auto steps = static_cast<double>(std::max<std::int64_t>(metrics.step - told_.step, 1));
    metrics.seconds = seconds_since(told_.when) / steps;
    metrics.tokens =
        step_plan(options_.train.batch).sequences * trainer_.replica().setup().shape.sequence;
    const std::int64_t before = std::exchange(told_, {metrics.step, SteadyClock::now()}).step;
    tell(*held_, before, last);
  }

  // All shares of all workers are done. The servers hold the states after the last step, which the
  // leader may not have computed or saved.
  void finish_shares() {
    strategy_->collect();
    TrainState state = trainer_.state();
    state.steps = state.updates = options_.steps;
    trainer_.set_state(state);
    saving_.changed();
    if (held_) held_->metrics.step = options_.steps;
  }

  std::span<const nn::Batch> read_batches(std::uint64_t first, const parallel::Share& share) {
    strategy_->trace().begin_step(share.step);
    const parallel::TraceScope scope(strategy_->trace(),
                                     {.lane = parallel::TraceLane::kWaiting, .kind = "data"});
    return source_->training(first, static_cast<int>(share.micro_batches));
  }

  // A loss or a gradient that is NaN has changed nothing, but would come again.
  void check_finite(const StepMetrics& metrics, std::span<const nn::Batch> micro_batches,
                    std::uint64_t first_sequence) {
    const auto& scale = trainer_.state().loss_scale;
    if (std::isfinite(metrics.loss)) {
      if (!metrics.skipped) return;
      if (scale && !optim::is_exhausted(*scale, options_.train.loss_scale)) return;
    }
    saving_.finish();
    fail_step(at_fault(), metrics, micro_batches, first_sequence);
  }

  // Stops before saving when the validation loss is NaN.
  void check_validation(const StepRecord& record) {
    if (!record.validation_loss) return;
    if (std::isfinite(*record.validation_loss)) return saving_.found_finite(record.metrics.step);
    saving_.finish();
    std::vector<nn::Batch> first;  // of this worker
    const auto judge =
        static_cast<std::uint64_t>(strategy_->in_lockstep() ? strategy_->worker() : 0);
    if (judge < source_->validation_batches()) first.push_back(source_->validation(judge));
    fail_validation(at_fault(), record.metrics.step, *record.validation_loss, first);
  }

  RunAtFault at_fault() {
    return {.replica = trainer_.replica(),
            .strategy = *strategy_,
            .group = group_,
            .checkpoints = checkpoints_,
            .options = options_.train};
  }

  void validate(StepRecord& record) {
    const auto begin = SteadyClock::now();
    const parallel::TraceScope scope(strategy_->trace(),
                                     {.lane = parallel::TraceLane::kCompute, .kind = "validation"});
    const bool shared = strategy_->in_lockstep();
    if (!shared && !group_.leads()) return;
    log_debug("validates after step {}", record.metrics.step);
    RunGroup judges = shared ? group_ : RunGroup(nullptr);
    const auto tell = [&](std::uint64_t done, std::uint64_t all) {
      audience_.validating({.step = record.metrics.step, .done = done, .all = all});
    };
    const Validation taken =
        validation_loss(trainer_.replica(), *strategy_, *source_, judges, stop_, tell);
    record.validation_loss = taken.loss;
    cut_ = cut_ || taken.cut;
    record.validation_seconds = seconds_since(begin);
  }

  void tell_interrupted() const {
    audience_.notice(fmt::format("{}: saved after step {}; the same command continues from there",
                                 stop_.came() ? stop_.name() : "another rank was asked to stop",
                                 trainer_.state().steps));
  }

  // A run does not end for a sample.
  void write_sample(std::int64_t step) {
    if (!cannot_sample(options_, dataset_).empty()) return;
    try {
      const auto text =
          sample_text(trainer_.replica(), *strategy_, group_, *dataset_.tokenizer, options_, stop_);
      if (text) audience_.sample(step, *text);
      cut_ = cut_ || (!text && group_.leads());
    } catch (const Error& error) {
      audience_.warning(fmt::format("no sample after step {}: {}", step, error.what()));
    }
  }

  const ResolvedRun& resolved_;
  const RunOptions& options_;  // its
  Audience& audience_;
  const StopSignal& stop_;
  RunGroup group_;
  std::optional<RunFolder>& folder_;
  const Dataset& dataset_;
  std::unique_ptr<TimedOps> timed_;  // where the trace shows the operations of a GPU
  Ops& ops_;
  CheckpointFolder checkpoints_;
  std::string data_;  // the fingerprint of the dataset
  std::unique_ptr<parallel::Strategy> strategy_;
  std::unique_ptr<Trainer> own_trainer_;
  Trainer& trainer_;
  std::unique_ptr<BatchSource> source_;
  RunSaving saving_;
  std::optional<AlgorithmRecord> algorithms_;  // where there is a folder
  bool resumed_ = false;
  std::string changed_;     // settings since the last start
  std::string other_data_;  // than that of the checkpoint, for people
  // The reports of a leader that does not wait for the others.
  struct Told {
    std::int64_t step = 0;
    SteadyClock::time_point when;
  };
  std::optional<StepRecord> held_;
  Told told_;
  bool sample_is_left_ = false;  // that of the last step
  bool cut_ = false;             // what was due after a step, for a worker was asked to end
  std::filesystem::path trace_;
};

}  // namespace

RunOutcome run_training(const RunSettings& settings,
                        std::span<const std::unique_ptr<RunObserver>> observers,
                        const StopSignal& stop, const RunRanks& ranks) {
  const auto begin = SteadyClock::now();
  Communicator* world = ranks.world != nullptr && ranks.world->size() > 1 ? ranks.world : nullptr;
  RunGroup group(world);

  const RunSettings planned = plan_job(settings, shape_of_job(settings, world, ranks.threads));
  const parallel::ParallelOptions& spread = planned.options.train.parallel;
  group.check_settings(planned.config);
  group.together([&] { check_device(planned.options.train); });

  std::unique_ptr<Communicator> workers;
  if (world != nullptr && parallel::has_own_servers(spread)) {
    const bool serves = parallel::is_server(spread.server, group.rank(), group.size());
    workers = world->split(serves ? 1 : 0, group.rank());
    if (serves) return serve(planned.options, ranks, *world, stop);
    group = RunGroup(workers.get());
  }

  Audience audience(observers);
  std::optional<OpenedData> opened;
  try {
    opened.emplace(planned.options, RunGroup(world), group.leads(), stop, audience);
  } catch (const StoppedBeforeTheFirstStep&) {
    audience.notice(fmt::format("{}: stopped before the first step", stop.name()));
    return RunOutcome::kInterrupted;
  }
  const std::unique_ptr<Ops> ops = make_ops(planned.options.train);
  const ResolvedRun resolved = resolve(planned, opened->dataset, *ops, group);
  MeshGroups mesh(resolved.options().train.parallel, world);
  Run run({.resolved = resolved,
           .opened = *opened,
           .ops = *ops,
           .audience = audience,
           .stop = stop,
           .group = group,
           .mesh = mesh},
          parallel::make_strategy(strategy_job(resolved.options(), ranks.host), mesh.workers()));
  try {
    const RunOutcome outcome = run.go();
    audience.end({.reason = outcome == RunOutcome::kFinished ? RunEnd::Reason::kFinished
                                                             : RunEnd::Reason::kInterrupted,
                  .seconds = seconds_since(begin),
                  .trace = run.trace()});
    return outcome;
  } catch (const std::exception& error) {
    audience.end({.reason = RunEnd::Reason::kFailed,
                  .message = error.what(),
                  .seconds = seconds_since(begin)});
    throw;
  }
}

}  // namespace lockstep::train
