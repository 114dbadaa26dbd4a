#include "lockstep/train/run/saving.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/checkpoint/residual_exchange.h"
#include "lockstep/train/model_io/model_of_start.h"
#include "lockstep/train/run/changed_settings.h"
#include "lockstep/train/run/start.h"

namespace lockstep::train {
RunSaving::~RunSaving() {
  if (under_way_) parts_.strategy.leave();
}

// Where workers shard their states all of them read and write what each holds; else the leader
// does it for them.
bool RunSaving::start() {
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
  return saved_;
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

void RunSaving::begin() {
  const auto begin = SteadyClock::now();
  const parallel::TraceScope scope(parts_.strategy.trace(),
                                   {.lane = parallel::TraceLane::kCompute, .kind = "checkpoint"});
  finish_removal();
  parts_.strategy.collect();
  step_ = parts_.trainer.state().steps;
  is_current_ = true;
  try {
    under_way_ =
        std::make_unique<SaveUnderWay>(SaveUnderWay::Job{.replica = parts_.trainer.replica(),
                                                         .strategy = parts_.strategy,
                                                         .folder = parts_.checkpoints,
                                                         .group = parts_.group,
                                                         .extras = extras()});
  } catch (const Error& error) {
    if (is_of_ranks(error.code())) throw;
    saved_ = false;
    tell_failure(step_, error.what());
  }
  stalled_ += seconds_since(begin);
}

CheckpointExtras RunSaving::extras() {
  const auto& tokenizer = parts_.dataset.tokenizer;
  if (!parts_.group.leads())
    return {.state = parts_.trainer.state(), .config = "", .tokenizer = ""};
  if (tokenizer && tokenizer_.empty()) tokenizer_ = tokenizer->json();
  return {.state = parts_.trainer.state(),
          .config = parts_.config.resolved(),
          .tokenizer = tokenizer_,
          .data = parts_.data};
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

void RunSaving::tell_failure(std::int64_t step, std::string_view why) {
  const auto steps = parts_.checkpoints.steps();
  parts_.audience.warning(fmt::format(
      "the checkpoint of step {} could not be saved: {}. {}", step, why,
      steps.empty() ? "No earlier checkpoint exists"
                    : fmt::format("The checkpoint of step {} is unchanged", steps.front())));
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
