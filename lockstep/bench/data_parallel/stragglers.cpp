#include <fmt/format.h>

#include <algorithm>

#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr int kWorkers = 4;
constexpr int kSlowRank = 3;  // has no server beside it, and is not the one that keeps the metrics
constexpr double kSlowFactor = 3;
constexpr int kStepsToTime = 100;  // where no loss is asked for

struct Consistency {
  const char* setting;
  const char* key;
};
constexpr Consistency kAll[] = {{"bsp", "bsp"}, {"asp", "asp"}, {"ssp(4)", "ssp"}};

// Steps of the whole run per second, between the first tenth and the last line, which has the
// validation in it. None where there are not lines enough.
std::optional<double> steps_per_second(const std::vector<StepStamp>& stamps) {
  if (stamps.size() < 4) return std::nullopt;
  const StepStamp& first = stamps[std::max<std::size_t>(1, stamps.size() / 10)];
  const StepStamp& last = stamps[stamps.size() - 2];
  if (last.time <= first.time || last.step <= first.step) return std::nullopt;
  return static_cast<double>(last.step - first.step) / (last.time - first.time);
}

// Validates the last parameters of a run with a single worker: asynchronous workers do not end
// together, and rank 0 may have no share of the last step. One step with a learning rate of 0
// changes nothing.
Trained validate(Session& session, const std::string& setting, const std::filesystem::path& run) {
  return session.run("stragglers", setting + ", validation",
                     {Session::with(session.recipe(1),
                                    {"run.init_from=" + run.string(), "optimizer.learning_rate=0",
                                     "schedule.warmup_steps=0", "schedule.decay=constant"}),
                      1});
}

Row straggler_row(Session& session, const Consistency& consistency) {
  Row row;
  row.setting = consistency.setting;
  const int steps = session.recipe_steps(kStepsToTime);
  const Training training{
      Session::with(
          session.recipe(steps),
          {"train.validate_batches=1", "parallel.strategy=parameter_server", "parallel.servers=2",
           "parallel.server_placement=colocated", "parallel.staleness=4",
           fmt::format("parallel.consistency={}", consistency.key),
           fmt::format("debug.slow_rank={}", kSlowRank),
           fmt::format("debug.slow_factor={:g}", kSlowFactor)}),
      kWorkers};
  std::vector<StepStamp> stamps;
  Trained validation;
  const Trained trained =
      session.run("stragglers", row.setting, training, [&](const std::filesystem::path& run) {
        stamps = step_stamps(run);
        if (session.has_text()) validation = validate(session, row.setting, run);
      });
  row.problem = !trained.problem.empty() ? trained.problem : validation.problem;
  if (!row.problem.empty()) return row;
  const auto rate = steps_per_second(stamps);
  if (!rate) {
    row.problem = fmt::format("{} lines of metrics are too few to measure a speed; raise --steps",
                              stamps.size());
    return row;
  }
  row.numbers.emplace_back("steps_per_s", *rate);
  if (const auto loss = validation.validation_loss()) row.numbers.emplace_back("val_loss", *loss);
  return row;
}

}  // namespace

CaseReport run_stragglers(Session& session) {
  CaseReport report{
      .name = "stragglers",
      .what = fmt::format("{} workers, rank {} {:g} times as slow, 2 parameter servers", kWorkers,
                          kSlowRank, kSlowFactor),
      .columns = {{"steps_per_s", "steps/s", Unit::kPerSecond},
                  {"val_loss", "validation loss", Unit::kLoss}}};
  for (const Consistency& one : kAll) report.rows.push_back(straggler_row(session, one));
  for (const char* setting : {"asp", "ssp(4)"}) {
    report.bars.push_back({.claim = fmt::format("steps/s of {} / bsp", setting),
                           .side = Bar::Side::kAtLeast,
                           .bound = 2,
                           .value = report.ratio(setting, "bsp", "steps_per_s"),
                           .why_not = "a run failed"});
    report.bars.push_back({.claim = fmt::format("validation loss of {} / bsp", setting),
                           .side = Bar::Side::kAtMost,
                           .bound = 1.05,
                           .value = report.ratio(setting, "bsp", "val_loss"),
                           .why_not = session.has_text() ? "a run failed" : "needs --text FILE"});
  }
  return report;
}

}  // namespace lockstep::bench::data_parallel
