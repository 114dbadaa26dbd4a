#include "lockstep/train/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/system/resident.h"
#include "lockstep/parallel/make_strategy.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/dataset/fingerprint.h"
#include "lockstep/train/dataset/shared_data.h"
#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/run/algorithm_record.h"
#include "lockstep/train/run/at_fault.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/run/beginning.h"
#include "lockstep/train/run/changed_settings.h"
#include "lockstep/train/run/complete_steps.h"
#include "lockstep/train/run/facts.h"
#include "lockstep/train/run/job.h"
#include "lockstep/train/run/keeping.h"
#include "lockstep/train/run/mesh_groups.h"
#include "lockstep/train/run/mirror.h"
#include "lockstep/train/run/near_gpu.h"
#include "lockstep/train/run/opened_data.h"
#include "lockstep/train/run/owed.h"
#include "lockstep/train/run/regrouping.h"
#include "lockstep/train/run/resolve.h"
#include "lockstep/train/run/run_validations.h"
#include "lockstep/train/run/samples.h"
#include "lockstep/train/run/saving.h"
#include "lockstep/train/run/start.h"
#include "lockstep/train/run/step_batches.h"
#include "lockstep/train/run/trace.h"
#include "lockstep/train/run/trainer_of_run.h"
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
    Survival* survival;
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
        own_trainer_(make_trainer(resolved_.train(), ops_, *strategy_, parts.group, parts.mesh)),
        trainer_(*own_trainer_),
        source_(make_source(options_.train, dataset_, trainer_.replica().setup().shape)),
        batches_(*source_, *strategy_, step_plan(options_.train.batch), options_.steps),
        saving_({.options = options_,
                 .config = resolved_.config(),
                 .audience = audience_,
                 .group = group_,
                 .checkpoints = checkpoints_,
                 .dataset = dataset_,
                 .data = data_,
                 .model_tokenizer = parts.opened.model_tokenizer,
                 .strategy = *strategy_,
                 .trainer = trainer_,
                 .survival = parts.survival}),
        validations_({.options = options_,
                      .audience = audience_,
                      .stop = stop_,
                      .group = group_,
                      .checkpoints = checkpoints_,
                      .source = *source_,
                      .strategy = *strategy_,
                      .trainer = trainer_,
                      .saving = saving_}),
        survival_(parts.survival),
        regrouping_(parts.survival, group_),
        trace_(options_, group_, *strategy_, audience_) {
    source_->limit_validation(validated_sequences(options_));
    if (trainer_.is_late()) {
      second_source_ = make_source(options_.train, dataset_, trainer_.replica().setup().shape);
      batches_.take_turns(*second_source_);
    }
    if (timed_ != nullptr) trainer_.trace_operations(*timed_);
    group_.check_data(data_);
    check_prompt(options_, dataset_);
    decide_to_keep(survival_, trainer_);
    const RunSaving::Began began = saving_.start();
    resumed_ = began != RunSaving::Began::kAtFirst;
    if (mirrors_shards(options_.train, ops_.device())) begin_mirror();
    group_.together([&] {
      if (!folder_) return;
      algorithms_.emplace(options_.dir);
      if (began != RunSaving::Began::kFromCheckpoint) return;
      changed_ = changed_settings(RunFolder::config_of(options_.dir), resolved_.config());
      other_data_ = changed_data(checkpoints_.data_of(trainer_.state().steps), data_);
    });
  }

  RunOutcome go() {
    if (survival_ != nullptr) survival_->forget();  // all have the states
    const auto known = saving_.source() ? saving_.source()->record : std::nullopt;
    Owed owed;
    if (resumed_) validations_.resume(trainer_.state().steps);
    if (resumed_ && (strategy_->in_lockstep() || is_over())) {
      const bool at_end = trainer_.state().steps == options_.steps || validations_.stops_early();
      owed =
          owed_after(trainer_.state().steps, at_end, options_, dataset_, *source_, group_, known);
    }
    const bool idle =
        resumed_ && !saving_.source() && is_over() && !owed.validation && !owed.sample;
    if (idle) {
      // Nothing begins, so nothing in the folder changes.
      audience_.notice(validations_.stops_early()
                           ? stopped_early(trainer_.state().steps, validations_.why_it_stops())
                           : nothing_to_do(options_, trainer_.state().steps));
    } else {
      group_.together([&] {
        if (folder_) folder_->begin(resolved_.config().resolved());
      });
      audience_.begin(facts());
      tell_beginning(owed);
      trace_.begin(trainer_.state().steps);
      catch_up(std::move(owed));
    }
    const parallel::StepPlan plan = step_plan(options_.train.batch);
    RunOutcome outcome = RunOutcome::kFinished;
    const bool has_steps = !is_over();
    while (const auto share = next_share(plan)) {
      if (step(plan, *share)) continue;
      if (strategy_->in_lockstep() && regrouping_.is_only_reason(stop_.came())) {
        if (regroup()) return RunOutcome::kRegroups;
        continue;
      }
      strategy_->stop();
      outcome = RunOutcome::kInterrupted;
      break;
    }
    if (mirror_ != nullptr) mirror_->finish();
    const bool finished = outcome == RunOutcome::kFinished;
    if (finished && has_steps && !strategy_->in_lockstep() && group_.leads()) finish_shares();
    if (held_) tell_held(finished);
    store_algorithms();
    saving_.save_current();
    // Not before: however long it takes, nothing is lost.
    if (sample_is_left_) write_sample(trainer_.state().steps);
    if (outcome == RunOutcome::kFinished && was_cut()) outcome = RunOutcome::kInterrupted;
    if (!idle) trace_.end();
    if (outcome == RunOutcome::kInterrupted && saving_.saved()) tell_interrupted();
    if (!idle && outcome == RunOutcome::kFinished && validations_.stops_early()) {
      audience_.notice(stopped_early(trainer_.state().steps, validations_.why_it_stops()));
    }
    // Ranks stay until the leader has saved: an earlier exit would look like a failure.
    if (strategy_->in_lockstep()) group_.barrier();
    saving_.check_saved();
    return outcome;
  }

  // Ranks were lost: whether this worker can go on. A mirror gives its shard once.
  bool survives() { return keeps_ = keeps_ || keep(survival_, trainer_, mirror_.get()); }

  const std::filesystem::path& trace() const { return trace_.file(); }

 private:
  // At once, so that a rank that dies in the first step is mirrored already.
  void begin_mirror() {
    mirror_ = make_mirror(*group_.world(), trainer_);
    saving_.set_mirror(*mirror_);
    mirror_->begin(*trainer_.last_settled());
    mirror_->wait();
    if (strategy_->in_lockstep()) trainer_.set_before_update([this] { mirror_->wait(); });
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
    train::tell_beginning({.resolved = resolved_,
                           .audience = audience_,
                           .dataset = dataset_,
                           .source = *source_,
                           .ops = ops_,
                           .changed_settings = changed_,
                           .changed_data = other_data_,
                           .mirrors_in_vain = mirror_ != nullptr && survival_ == nullptr,
                           .owed = owed,
                           .done = trainer_.state().steps,
                           .states_of = saving_.source() ? saving_.source()->what : "",
                           .resumed = resumed_});
  }

  // Whether it was done: not where a worker was asked to end.
  bool step(const parallel::StepPlan& plan, const parallel::Share& share) {
    const auto begin = SteadyClock::now();
    const auto micro_batches = batches_.read(share);
    const double data_seconds = seconds_since(begin);
    auto done = complete_steps(trainer_, batches_, options_, micro_batches, share,
                               stop_.came() || regrouping_.is_asked());
    if (!done) return false;
    if (mirror_ != nullptr) mirror_->begin(*trainer_.last_settled());
    if (!done->empty()) done->back().seconds -= saving_.take_waited();
    saving_.changed();
    saving_.look();
    if (trainer_.is_late()) saving_.compare_if_due();  // its steps may end none, or two
    for (StepMetrics& metrics : *done) {
      take({.metrics = std::move(metrics), .data_seconds = data_seconds}, plan, share);
    }
    return true;
  }

  void take(StepRecord record, const parallel::StepPlan& plan, parallel::Share share) {
    share.step = record.metrics.step;
    record.workers =
        costs_of_workers(record.metrics.costs, group_.size(), options_.train.parallel.tensor);
    check_finite(record.metrics, plan, share);
    saving_.found_finite(share.step - (trainer_.is_late() ? 2 : 1));
    if (!trainer_.is_late()) saving_.compare_if_due();
    if (strategy_->in_lockstep()) {
      const bool last = share.step == options_.steps;
      tell(record, share.step - 1, last);
      if (!last) trace_.after_step(share.step);
    } else if (group_.leads()) {
      hold(std::move(record));
    }
  }

  // Keeps the states, or saves them. Otherwise workers stay as they are.
  bool regroup() {
    if (mirror_ != nullptr) mirror_->wait();
    store_algorithms();
    saving_.finish();
    if (!survives()) {
      saving_.save_current();
      if (group_.any(!saving_.saved())) return regrouping_.decline();
    }
    group_.barrier();  // an earlier exit would look like a failure
    return true;
  }

  // All steps are done, or the validation loss no longer falls.
  bool is_over() const {
    return trainer_.state().steps >= options_.steps || validations_.stops_early();
  }

  std::optional<parallel::Share> next_share(const parallel::StepPlan& plan) {
    if (validations_.stops_early()) return std::nullopt;
    return strategy_->next(plan, trainer_.state().steps, options_.steps);
  }

  // Reports a step, after doing what is due since `before`, the last reported step.
  void tell(StepRecord& record, std::int64_t before, bool last) {
    const std::int64_t done = record.metrics.step;
    const auto is_due = [&](int every) { return every > 0 && done / every > before / every; };
    const bool validates = last || is_due(options_.validate_every);
    if (validates) validations_.take(record);
    last = last || validations_.stops_early();
    record.checkpoint_seconds = saving_.take_stalled();
    record.background_seconds = saving_.take_background();
    const Device device = ops_.device();
    record.memory_bytes = device == Device{} ? peak_resident_bytes() : peak_memory(device);
    // Observers have every step that a checkpoint holds, even if the process is killed now.
    audience_.step(record);
    const bool is_best = validates && validations_.follow(record);
    if ((is_best || is_due(options_.checkpoint.every)) && !last) {
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
    if (owed.validation) validations_.take(owed.record);
    if (owed.report || (owed.validation && owed.record.validation_loss)) {
      audience_.step(owed.record);
    }
    const bool is_best = owed.validation ? validations_.follow(owed.record)
                                         : resumed_ && validations_.is_best(owed.record);
    const std::int64_t done = owed.record.metrics.step;
    const int every = options_.checkpoint.every;
    const bool save_is_due = saving_.source() && every > 0 && done % every == 0;
    if (is_best || (save_is_due && !is_over() && !saving_.saved())) saving_.save();
    if (owed.sample) {
      write_sample(done);
    } else if (owed.validation && validations_.stops_early()) {
      sample_is_left_ = options_.sample.every > 0;
    }
  }

  // Whether a worker was asked to end in the last validation or sample.
  bool was_cut() {
    const bool cut = cut_ || validations_.was_cut();
    return strategy_->in_lockstep() ? group_.any(cut) : cut;
  }

  // Where workers do not wait for each other the leader computes only some shares, and those of
  // lost workers late. It reports a step, with what it knows, when it has reached a later one.
  void hold(StepRecord record) {
    if (held_ && record.metrics.step < held_->metrics.step) return;
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

  // A loss or a gradient that is NaN has changed nothing, but would come again.
  void check_finite(const StepMetrics& metrics, const parallel::StepPlan& plan,
                    const parallel::Share& share) {
    const auto& scale = trainer_.state().loss_scale;
    if (std::isfinite(metrics.loss)) {
      if (!metrics.skipped) return;
      if (scale && !optim::is_exhausted(*scale, options_.train.loss_scale)) return;
    }
    saving_.finish();
    fail_step(validations_.at_fault(), metrics, batches_.read_again(share),
              static_cast<std::uint64_t>(share.first_micro_batch * plan.micro));
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
  std::unique_ptr<BatchSource> second_source_;  // with late updates: two steps are read at once
  StepBatches batches_;
  RunSaving saving_;
  RunValidations validations_;
  Survival* survival_;
  Regrouping regrouping_;
  std::unique_ptr<Mirror> mirror_;             // with survive.mirror
  bool keeps_ = false;                         // the states after the last step, for survival_
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
  bool cut_ = false;             // a sample, for a worker was asked to end
  RunTrace trace_;
};

}  // namespace

RunOutcome run_training(const RunSettings& settings,
                        std::span<const std::unique_ptr<RunObserver>> observers,
                        const StopSignal& stop, const RunRanks& ranks) {
  const auto begin = SteadyClock::now();
  Communicator* world = ranks.world != nullptr && ranks.world->size() > 1 ? ranks.world : nullptr;
  RunGroup group(world);

  const RunSettings planned = plan_job(settings, shape_of_job(settings, world, ranks));
  const parallel::ParallelOptions& spread = planned.options.train.parallel;
  group.check_settings(planned.config);
  group.together([&] { check_device(planned.options.train); });
  stay_near_gpu(planned.options.train, world);

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
    opened.emplace(planned.options, RunGroup(world), group.leads(),
                   ranks.generation == 0 ? &stop : nullptr, audience);
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
           .mesh = mesh,
           .survival = ranks.survival},
          parallel::make_strategy(strategy_job(resolved.options(), ranks), mesh.workers()));
  try {
    const RunOutcome outcome = run.go();
    if (outcome == RunOutcome::kRegroups) return outcome;
    audience.end({.reason = outcome == RunOutcome::kFinished ? RunEnd::Reason::kFinished
                                                             : RunEnd::Reason::kInterrupted,
                  .seconds = seconds_since(begin),
                  .trace = run.trace()});
    return outcome;
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && is_loss_of_ranks(known->code()) && run.survives()) throw;
    audience.end({.reason = RunEnd::Reason::kFailed,
                  .message = error.what(),
                  .seconds = seconds_since(begin)});
    throw;
  }
}

}  // namespace lockstep::train
