#include "lockstep/train/run/saving.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/checkpoint/residual_exchange.h"
#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/model_io/model_of_start.h"
#include "lockstep/train/run/changed_settings.h"
#include "lockstep/train/run/start.h"

namespace lockstep::train {
RunSaving::~RunSaving() {
  if (under_way_) parts_.strategy.leave();
}

// Where workers shard their states all of them read and write what each holds; else the leader
// does it for them.
RunSaving::Began RunSaving::start() {
  if (start_from_worker()) return Began::kFromWorker;
  std::optional<TrainState> state;
  if (shares_states()) {
    state = restore(parts_.group);
  } else {
    parts_.group.together([&] {
      if (parts_.group.leads()) state = restore(RunGroup(nullptr));
    });
    state = parts_.group.from_leader(state);
  }
  if (state) parts_.trainer.set_state(*state);
  parts_.trainer.start();
  if (state) restore_residuals(state->steps);
  saved_ = state.has_value();
  if (state) replaces_ = state->steps;
  find_best();
  make_snapshot();
  return saved_ ? Began::kFromCheckpoint : Began::kAtFirst;
}

// Now, since allocating pinned memory takes long.
void RunSaving::make_snapshot() {
  const CheckpointOptions& checkpoint = parts_.options.checkpoint;
  const bool writes = shares_states() || parts_.group.leads();
  if (writes && checkpoint.async_save && checkpoint.every > 0) {
    try {
      snapshot_ = StateSnapshot::make(parts_.trainer.replica());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kSystem) throw;
      parts_.audience.notice(fmt::format(
          "updates will wait for saves, which read the GPU in place: {}", error.what()));
    }
  }
}

// Checkpoints that are newer than the one that was restored are damaged, or will be made again.
void RunSaving::find_best() {
  if (parts_.options.checkpoint.keep_best == 0) return;
  parts_.group.together([&] {
    if (!parts_.group.leads()) return;
    for (const CheckpointFolder::Validated& one : parts_.checkpoints.by_validation()) {
      if (one.step <= parts_.trainer.state().steps) with_loss_.push_back(one);
    }
  });
}

bool RunSaving::found_validation(std::optional<double> loss) {
  const std::int64_t step = parts_.trainer.state().steps;
  // A delayed update is in a checkpoint and not in a validation of its step.
  const bool is_of_checkpoint = !parts_.options.train.offload.tiers.delayed_update;
  if (loss && std::isfinite(*loss) && is_of_checkpoint) validated_ = {.step = step, .loss = *loss};
  const int keep = parts_.options.checkpoint.keep_best;
  if (keep == 0) return false;
  double is_best = 0;
  if (parts_.group.leads() && validated_ && validated_->step == step) {
    const double mine = validated_->loss;
    const auto better = std::ranges::count_if(
        with_loss_, [&](const auto& one) { return one.step != step && one.loss <= mine; });
    const bool is_saved = std::ranges::any_of(
        with_loss_, [&](const auto& one) { return one.step == step && one.loss == mine; });
    is_best = better < keep && !is_saved ? 1 : 0;
  }
  return parts_.group.numbers(std::span(&is_best, 1)).front() != 0;
}

// Of what is being saved.
std::optional<double> RunSaving::loss_to_save() {
  if (!validated_ || validated_->step != step_) return std::nullopt;
  std::erase_if(with_loss_, [&](const auto& one) { return one.step == step_; });
  with_loss_.push_back(*validated_);
  return validated_->loss;
}

bool RunSaving::start_from_worker() {
  if (parts_.survival == nullptr) return false;
  const std::int64_t newest = newest_checkpoint();
  const bool shards = keeps_shards(parts_.options.train, parts_.trainer.replica().ops().device());
  if (!(shards ? take_shards(newest) : take_states())) return false;
  // With the metrics, which the leader may not live to write.
  parts_.trainer.set_state(
      source_->state, source_->record ? std::optional(source_->record->metrics) : std::nullopt);
  parts_.trainer.start();
  saved_ = newest == source_->state.steps;
  if (newest >= 0) replaces_ = newest;
  find_best();
  make_snapshot();
  return true;
}

// The leader has the folder; all must judge alike. -1: there is none.
std::int64_t RunSaving::newest_checkpoint() {
  double newest = -1;
  if (parts_.group.leads()) {
    const std::vector<std::int64_t> steps = parts_.checkpoints.steps();
    if (!steps.empty()) newest = static_cast<double>(steps.front());
  }
  return static_cast<std::int64_t>(parts_.group.numbers(std::span(&newest, 1)).front());
}

bool RunSaving::take_states() {
  source_ = furthest_worker(parts_.survival->kept, parts_.group);
  if (!source_) return false;
  parts_.group.together([&] {
    if (parts_.group.rank() != source_->worker) return;
    put_states(*parts_.survival->kept, parts_.trainer.replica());
  });
  parts_.strategy.set_source(source_->worker);
  return true;
}

// A checkpoint may be newer: workers saved a step that was not mirrored yet.
bool RunSaving::take_shards(std::int64_t newest_checkpoint) {
  auto& kept = parts_.survival->shards;
  if (!parts_.strategy.in_lockstep()) align_steps(kept, parts_.group);
  CommonStepSearch search = find_common_step(kept, parts_.group);
  if (!search.lost.empty()) {
    parts_.audience.warning(fmt::format(
        "{}: the run {}", search.lost,
        newest_checkpoint >= 0 ? "continues from the newest checkpoint" : "starts from scratch"));
  }
  if (!search.found || search.found->state.steps <= newest_checkpoint) return false;
  nn::Replica& replica = parts_.trainer.replica();
  const bool of_servers = parts_.strategy.served_states() != nullptr;
  if (of_servers) {
    restore_slices(*search.found, kept, parts_.group,
                   served_slices_of(parts_.options.train, replica.plan()), replica);
  } else {
    restore_shards(*search.found, kept, parts_.group, replica);
  }
  source_ = {.state = search.found->state,
             .record = search.found->record,
             .what = of_servers ? describe_slices(*search.found) : describe(*search.found)};
  return true;
}

void RunSaving::restore_residuals(std::int64_t step) {
  std::optional<std::filesystem::path> file;
  if (parts_.group.leads()) file = parts_.checkpoints.residuals_of(step);
  ResidualExchange(parts_.group, parts_.strategy, parts_.trainer.replica().flat().elements())
      .restore(file, [&](const std::string& text) { parts_.audience.warning(text); });
}

// By all of `readers`.
std::optional<TrainState> RunSaving::restore(RunGroup readers) const {
  const RunOptions& options = parts_.options;
  const auto warn = [&](const std::string& text) { parts_.audience.warning(text); };
  const bool comparable = parts_.model_tokenizer && parts_.dataset.tokenizer;
  readers.together([&] {
    if (!readers.leads() || parts_.checkpoints.steps().empty()) return;
    if (!options.resume) {
      fail(
          ErrorCode::kInvalidArgument,
          "run.resume = false, but run.dir = {} has checkpoints. Set run.resume = true to continue "
          "that run, or choose another run.dir",
          options.dir);
    }
    if (comparable) {
      check_same_tokenizer(options, *parts_.model_tokenizer, *parts_.dataset.tokenizer);
    }
  });
  if (readers.size() > 1) parts_.checkpoints.check_seen_by_all(readers);
  nn::Replica& replica = parts_.trainer.replica();
  auto state = restore_states(replica, warn, readers);
  if (!state && !options.init_from.empty()) {
    load_parameters(options.train, options.init_from, replica, warn, readers);
  }
  if (comparable && !state) {
    const auto other = other_tokenizer(options, *parts_.model_tokenizer, *parts_.dataset.tokenizer);
    if (!other.empty()) warn(other);
  }
  return state;
}

std::optional<TrainState> RunSaving::restore_states(nn::Replica& replica, const Warn& warn,
                                                    RunGroup readers) const {
  try {
    return parts_.checkpoints.restore(replica, warn, readers);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    const std::string changed =
        changed_model(stored_text(parts_.options.dir, kConfigFile), parts_.config);
    if (changed.empty()) throw;
    fail(
        ErrorCode::kInvalidArgument,
        "the run in run.dir = {} has another model: {}. Set the model as it was, or choose another "
        "run.dir",
        parts_.options.dir, changed);
  }
}

void RunSaving::save() {
  constexpr double kWorthTelling = 1;  // seconds
  const auto before = SteadyClock::now();
  finish();
  const double waited = seconds_since(before);
  if (waited >= kWorthTelling && !std::exchange(told_of_waiting_, true)) {
    parts_.audience.notice(
        fmt::format("training waited {:.1f} s because a checkpoint was due before the previous one "
                    "was written. A larger checkpoint.every avoids that",
                    waited));
  }
  begin();
  if (!parts_.options.checkpoint.async_save) finish();
}

void RunSaving::save_current() {
  finish();
  if (saved()) return;
  save();
  finish();
}

void RunSaving::begin() {
  const auto begin = SteadyClock::now();
  const parallel::TraceScope scope(parts_.strategy.trace(),
                                   {.lane = parallel::TraceLane::kCompute, .kind = "checkpoint"});
  finish_removal();
  fingerprint_ = compare_workers(true);
  parts_.strategy.collect();
  step_ = parts_.trainer.state().steps;
  is_current_ = true;
  try {
    under_way_ =
        std::make_unique<SaveUnderWay>(SaveUnderWay::Job{.replica = parts_.trainer.replica(),
                                                         .strategy = parts_.strategy,
                                                         .folder = parts_.checkpoints,
                                                         .group = parts_.group,
                                                         .extras = extras(),
                                                         .snapshot = snapshot_.get()});
  } catch (const Error& error) {
    if (is_of_ranks(error.code())) throw;
    saved_ = false;
    tell_failure(step_, error.what());
  }
  stalled_ += seconds_since(begin);
}

std::string RunSaving::compare_workers(bool whole) {
  if (!parts_.strategy.in_lockstep() || parts_.group.size() == 1) return "";
  try {
    if (mirror_ != nullptr) mirror_->compare();
    return parts_.strategy.compare_workers(whole);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMismatch) throw;
    const auto clean = parts_.checkpoints.newest_compared();
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("after step {} {}. Nothing is saved from here on. {}",
                    parts_.trainer.state().steps, error.what(),
                    clean
                        ? fmt::format("The checkpoint of step {} is the newest that is known to be "
                                      "clean: remove later ones, if any, and start the run again",
                                      *clean)
                        : "No checkpoint is known to be clean"),
        error.ranks());
  }
}

void RunSaving::compare_if_due() {
  const int every = parts_.options.train.parallel.check_every;
  if (every > 0 && parts_.trainer.state().steps % every == 0) compare_workers(false);
}

CheckpointExtras RunSaving::extras() {
  const auto& tokenizer = parts_.dataset.tokenizer;
  if (!parts_.group.leads())
    return {.state = parts_.trainer.state(), .config = "", .tokenizer = ""};
  if (tokenizer && tokenizer_.empty()) tokenizer_ = tokenizer->json();
  return {.state = parts_.trainer.state(),
          .config = parts_.config.resolved(),
          .tokenizer = tokenizer_,
          .data = parts_.data,
          .fingerprint = fingerprint_,
          .validation_loss = loss_to_save()};
}

void RunSaving::look() {
  if (!under_way_) return;
  const auto begin = SteadyClock::now();
  if (const auto outcome = under_way_->look()) {
    background_ += outcome->seconds;
    conclude(*outcome);
  }
  stalled_ += seconds_since(begin);
}

void RunSaving::finish() {
  if (!under_way_) return;
  const auto begin = SteadyClock::now();
  const parallel::TraceScope scope(parts_.strategy.trace(),
                                   {.lane = parallel::TraceLane::kCompute, .kind = "checkpoint"});
  const bool overlapped = !is_current_;
  const SaveOutcome outcome = under_way_->wait();
  if (overlapped) background_ += outcome.seconds;
  conclude(outcome);
  stalled_ += seconds_since(begin);
}

void RunSaving::conclude(const SaveOutcome& outcome) {
  stalled_ += under_way_->take_waited();
  under_way_.reset();
  saved_ = is_current_ && !outcome.failure;
  if (outcome.failure) {
    tell_failure(step_, *outcome.failure);
  } else {
    replaces_ = step_;
    remove_replaced();
  }
}

void RunSaving::found_finite(std::int64_t step) {
  finite_ = step;
  remove_replaced();
}

void RunSaving::remove_replaced() {
  if (!replaces_ || finite_ < *replaces_) return;
  const std::int64_t newest = *std::exchange(replaces_, std::nullopt);
  if (!parts_.group.leads()) return;
  finish_removal();
  removal_.emplace(
      [this, newest] { parts_.checkpoints.remove_old(newest, parts_.options.checkpoint); });
}

void RunSaving::finish_removal() {
  if (!removal_) return;
  removal_->wait();
  if (const auto& failure = removal_->failure()) {
    parts_.audience.warning(
        fmt::format("an earlier checkpoint could not be removed: {}", failure->what()));
  }
  removal_.reset();
}

// The folder of checkpoints may be what is wrong.
std::string RunSaving::newest_unchanged() const {
  try {
    const auto steps = parts_.checkpoints.steps();
    if (steps.empty()) return "No earlier checkpoint exists";
    return fmt::format("The checkpoint of step {} is unchanged", steps.front());
  } catch (const Error& error) {
    return fmt::format("Whether there is an earlier one is unknown: {}", error.what());
  }
}

void RunSaving::tell_failure(std::int64_t step, std::string_view why) {
  std::erase_if(with_loss_, [&](const auto& one) { return one.step == step; });
  parts_.audience.warning(fmt::format("the checkpoint of step {} could not be saved: {}. {}", step,
                                      why, newest_unchanged()));
}

void RunSaving::check_saved() {
  finish_removal();
  if (saved_ || !parts_.group.leads()) return;
  const auto steps = parts_.checkpoints.steps();
  fail(ErrorCode::kSystem,
       "step {} is done but could not be saved in {}. Free some space there and start the run "
       "again: it {}",
       parts_.trainer.state().steps, parts_.options.dir,
       steps.empty() ? "starts from scratch"
                     : fmt::format("continues after step {}", steps.front()));
}

double RunSaving::take_stalled() { return std::exchange(stalled_, 0); }

double RunSaving::take_waited() {
  const double waited = under_way_ ? under_way_->take_waited() : 0;
  stalled_ += waited;
  return waited;
}

double RunSaving::take_background() { return std::exchange(background_, 0); }

}  // namespace lockstep::train
