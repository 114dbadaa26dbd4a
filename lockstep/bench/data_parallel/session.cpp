#include "lockstep/bench/data_parallel/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/data/token_file/writer.h"

namespace lockstep::bench::data_parallel {
namespace {

namespace fs = std::filesystem;

constexpr int kTimedSteps = 8;             // of a run
constexpr std::int64_t kTokens = 1 << 18;  // of synthetic data
constexpr int kLetters = 65;               // kinds of them in the recipe's usual text
constexpr int kRecipeSteps = 2000;
constexpr int kValidationBatches = 20;

// Prints a line when a run is done, so that a bench that is killed has reported it.
void tell_of(const Trained& trained, std::string_view name, std::string_view setting,
             double seconds) {
  std::string how = "failed";
  if (trained.problem.empty() && !trained.steps.empty()) {
    std::vector<double> steps;
    for (const TrainedStep& step : trained.steps) steps.push_back(step.seconds);
    std::sort(steps.begin(), steps.end());
    how = fmt::format("{} of {} (median)", counted(steps.size(), "step"),
                      format_seconds(quantile(steps, 0.5)));
    if (const auto loss = trained.validation_loss()) {
      how += fmt::format(", validation loss {:.4f}", *loss);
    }
  }
  fmt::print(stderr, "lockstep: {}: {}: {}, in {}\n", name, setting, how, format_seconds(seconds));
}

}  // namespace

double Turn::median(const std::function<double(const TrainedStep&)>& of) const {
  std::vector<double> values;
  for (const TrainedStep& step : steps) values.push_back(of(step));
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

std::vector<Column> timed_columns() {
  return {{"step_s", "step", Unit::kSeconds},
          {"tokens_per_s", "tokens/s", Unit::kPerSecond},
          {"compute_s", "compute", Unit::kSeconds},
          {"communication_s", "communication", Unit::kSeconds},
          {"exposed_s", "exposed", Unit::kSeconds},
          {"bytes_sent", "sent", Unit::kBytes}};
}

Row row_of(const Turn& turn) {
  Row row{.setting = turn.setting, .problem = turn.problem, .ours = turn.ours};
  if (!turn.problem.empty() || turn.steps.empty()) return row;
  const double seconds = turn.median([](const TrainedStep& step) { return step.seconds; });
  row.numbers.emplace_back("step_s", seconds);
  row.numbers.emplace_back("tokens_per_s", turn.steps.front().tokens / seconds);
  const bool tells = std::all_of(turn.steps.begin(), turn.steps.end(),
                                 [](const TrainedStep& step) { return step.ranks.has_value(); });
  if (!tells) return row;
  const auto add = [&](const char* key, auto field) {
    row.numbers.emplace_back(key, turn.median([&](const TrainedStep& step) {
      return static_cast<double>((*step.ranks).*field);
    }));
  };
  add("compute_s", &train::WorkerCosts::compute_seconds);
  add("communication_s", &train::WorkerCosts::communication_seconds);
  add("exposed_s", &train::WorkerCosts::exposed_seconds);
  add("bytes_sent", &train::WorkerCosts::bytes_sent);
  return row;
}

Session::Session(const DataParallelBench& bench, const Interrupt& interrupt)
    : bench_(bench), interrupt_(interrupt) {}

std::vector<std::string> Session::with(std::vector<std::string> settings,
                                       const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

train::RunOptions Session::options_of(const std::vector<std::string>& settings) {
  train::RunOptions options;
  Config config;
  train::bind(config, options);
  for (const std::string& setting : settings) config.set(setting);
  return options;
}

bool Session::describes_a_model() const {
  return std::any_of(bench_.settings.begin(), bench_.settings.end(),
                     [](const std::string& setting) { return setting.starts_with("model."); });
}

std::vector<std::string> Session::timed_model(int batch, int sequence) {
  std::vector<std::string> settings{
      fmt::format("train.global_batch_size={}", bench_.batch > 0 ? bench_.batch : batch),
      fmt::format("train.seq_len={}", bench_.sequence > 0 ? bench_.sequence : sequence),
      fmt::format("train.steps={}", steps(kTimedSteps)),
      "train.precision=bf16",
      "train.threads=1",
      "train.validate_every=0",
      "data.validation_fraction=0",
      "checkpoint.every=0",
      "parallel.check_every=0"};
  if (!describes_a_model()) settings.push_back("model.name=" + bench_.model);
  settings = with(settings, bench_.settings);
  const auto vocabulary = train::shape_of(options_of(settings).train).vocabulary;
  settings.push_back("data.tokens=" + tokens(static_cast<std::int64_t>(vocabulary)).string());
  return settings;
}

std::size_t Session::linked_sequences() {
  return static_cast<std::size_t>(options_of(linked_model()).train.batch.sequences);
}

std::vector<std::string> Session::recipe(int steps) {
  std::vector<std::string> settings{
      "model.layers=4",
      "model.heads=4",
      "model.hidden=128",
      "train.seq_len=64",
      "train.global_batch_size=12",
      fmt::format("train.steps={}", steps),
      "train.precision=f32",
      "train.threads=1",
      "train.validate_every=0",
      fmt::format("train.validate_batches={}", kValidationBatches),
      "optimizer.beta2=0.99",
      "optimizer.learning_rate=2e-3",
      fmt::format("schedule.warmup_steps={}", std::min(100, steps / 2)),
      "schedule.decay=cosine",
      "checkpoint.every=0"};
  settings = with(settings, bench_.settings);
  if (has_text()) {
    return with(settings, {"data.text=" + fs::absolute(bench_.text).string(),
                           "data.tokenizer=character", "data.validation_fraction=0.1"});
  }
  const int vocabulary = options_of(settings).train.model.vocabulary;
  return with(settings, {"data.tokens=" + tokens(vocabulary > 0 ? vocabulary : kLetters).string(),
                         "data.validation_fraction=0"});
}

int Session::recipe_steps(int without_text) const {
  return steps(has_text() ? kRecipeSteps : without_text);
}

// Any token as likely as any other.
fs::path Session::tokens(std::int64_t vocabulary) {
  const fs::path path = scratch_.path() / fmt::format("{}.tokens", vocabulary);
  if (fs::exists(path)) return path;
  data::TokenWriter writer(path,
                           {.format = data::TokenFormat::kLockstep, .vocabulary = vocabulary});
  std::vector<data::TokenId> ids(static_cast<std::size_t>(kTokens));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] =
        static_cast<data::TokenId>(random_word(1, 0, i) % static_cast<std::uint64_t>(vocabulary));
  }
  writer.append(ids);
  writer.finish();
  return path;
}

Trained Session::told(std::string_view name, std::string_view setting,
                      const std::function<Trained()>& once) {
  Trained trained;
  if (!interrupted_) {
    fmt::print(stderr, "lockstep: {}: {} ...\n", name, setting);
    const auto begin = SteadyClock::now();
    try {
      trained = once();
      tell_of(trained, name, setting, seconds_since(begin));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAborted) throw;
      interrupted_ = error;
    }
  }
  if (interrupted_) return {.problem = fmt::format("not run: {}", interrupted_->what())};
  return trained;
}

Trained Session::run(std::string_view name, std::string_view setting, const Training& training,
                     const Look& look) {
  return told(name, setting, [&] {
    const ScratchFolder folder;
    const fs::path run = folder.path() / "run";
    Trained trained = run_training(bench_.command, training, run, interrupt_);
    if (trained.problem.empty() && look) look(run);
    return trained;
  });
}

Turn Session::turn(std::string_view name, std::string setting, Training training) {
  Turn turn;
  turn.setting = std::move(setting);
  turn.once = [this, name = std::string(name), what = turn.setting,
               training = std::move(training)] { return run(name, what, training); };
  return turn;
}

void Session::by_turns(std::span<Turn> turns) {
  for (int run = 0; run < bench_.runs; ++run) {
    for (Turn& turn : turns) {
      if (!turn.problem.empty() || (interrupted_ && turn.turns > 0)) continue;
      Trained trained = turn.once();
      if (interrupted_ && turn.turns > 0) continue;  // what it has stands
      turn.problem = trained.problem;
      if (!turn.problem.empty() || trained.steps.empty()) continue;
      ++turn.turns;
      const std::size_t first = std::min(kFirstSteps, trained.steps.size() - 1);
      turn.steps.insert(turn.steps.end(),
                        trained.steps.begin() + static_cast<std::ptrdiff_t>(first),
                        trained.steps.end());
    }
  }
}

void Session::weigh(std::span<Turn> turns) {
  fmt::print(stderr, "lockstep: one more run, to measure the memory of ranks\n");
  for (Turn& turn : turns) {
    if (!turn.problem.empty() || interrupted_) continue;
    MemoryWatch watch(bench_.ranks);
    const Trained trained = turn.once();
    if (interrupted_) return;  // what was timed stands
    turn.problem = trained.problem;
    turn.memory = watch.finish();
  }
}

}  // namespace lockstep::bench::data_parallel
