#include "lockstep/train/run_saving.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/train/model_of_start.h"
#include "lockstep/train/residual_exchange.h"
#include "lockstep/train/run_start.h"

namespace lockstep::train {
namespace {

// What ends a run: ranks that are gone, or at odds.
bool is_of_ranks(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kTimeout ||
         code == ErrorCode::kAborted || code == ErrorCode::kMismatch;
}

std::function<io::FileHash(const std::filesystem::path&)> residual_writer(
    ResidualExchange& residuals) {
  if (!residuals.any()) return nullptr;
  return [&](const std::filesystem::path& file) { return residuals.write(file); };
}

}  // namespace

// Where workers share out their states all of them read and write what each holds; else the leader
// does it for them.
bool RunSaving::start() {
  std::optional<TrainState> state;
  if (shares_states()) {
    state = restore(parts_.group);
  } else {
    if (parts_.group.leads()) state = restore(RunGroup(nullptr));
    state = parts_.group.from_leader(state);
  }
  if (state) parts_.trainer.set_state(*state);
  parts_.trainer.start();
  if (state) restore_residuals(state->steps);
  saved_ = state.has_value();
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
      fail(ErrorCode::kInvalidArgument,
           "run.resume is false, but run.dir = {} has checkpoints; choose another folder",
           options.dir);
    }
    if (comparable) {
      check_same_tokenizer(options, *parts_.model_tokenizer, *parts_.dataset.tokenizer);
    }
  });
  if (readers.size() > 1) parts_.checkpoints.check_seen_by_all(readers);
  nn::Replica& replica = parts_.trainer.replica();
  auto state = parts_.checkpoints.restore(replica, warn, readers);
  if (!state && !options.from.empty()) {
    load_parameters(options.train, options.from, replica, warn, readers);
  }
  if (comparable && !state) {
    const auto other = other_tokenizer(options, *parts_.model_tokenizer, *parts_.dataset.tokenizer);
    if (!other.empty()) warn(other);
  }
  return state;
}

void RunSaving::save() {
  const auto begin = SteadyClock::now();
  const parallel::TraceScope scope(parts_.strategy.trace(),
                                   {.lane = parallel::TraceLane::kCompute, .kind = "checkpoint"});
  parts_.strategy.collect();
  saved_ = true;
  ResidualExchange residuals(parts_.group, parts_.strategy,
                             parts_.trainer.replica().flat().elements());
  if (shares_states() || parts_.group.leads()) write(residuals);
  if (residuals.any()) {
    if (!parts_.group.leads()) residuals.give();
    saved_ = residuals.settle(saved_);
  }
  seconds_ += seconds_since(begin);
}

void RunSaving::write(ResidualExchange& residuals) {
  const TrainState& state = parts_.trainer.state();
  const CheckpointOptions& keep = parts_.options.checkpoint;
  try {
    const CheckpointExtras extras{
        .state = state,
        .config = parts_.config.resolved(),
        .tokenizer = parts_.dataset.tokenizer ? parts_.dataset.tokenizer->json() : "",
        .write_residuals = residual_writer(residuals)};
    if (shares_states()) {
      parts_.checkpoints.save_by_all(parts_.trainer.replica(), extras, keep, parts_.group);
    } else {
      parts_.checkpoints.save(parts_.trainer.replica(), extras, keep);
    }
  } catch (const Error& error) {
    if (is_of_ranks(error.code())) throw;
    saved_ = false;
    const auto steps = parts_.checkpoints.steps();
    parts_.audience.warning(fmt::format(
        "the checkpoint of step {} could not be saved: {}. {}", state.steps, error.what(),
        steps.empty() ? "There is none yet"
                      : fmt::format("The one of step {} is as it was", steps.front())));
  }
}

void RunSaving::check_saved() const {
  if (saved_ || !parts_.group.leads()) return;
  const auto steps = parts_.checkpoints.steps();
  fail(ErrorCode::kSystem,
       "step {} is done, but could not be saved in {}; make room there and start the run again: "
       "it {}",
       parts_.trainer.state().steps, parts_.options.dir,
       steps.empty() ? "begins anew" : fmt::format("goes on after step {}", steps.front()));
}

double RunSaving::take_seconds() { return std::exchange(seconds_, 0); }

}  // namespace lockstep::train
