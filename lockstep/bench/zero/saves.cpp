#include <fmt/format.h>

#include <algorithm>

#include "lockstep/bench/statistics.h"
#include "lockstep/bench/zero/cases.h"

namespace lockstep::bench::zero {

using data_parallel::Bar;
using data_parallel::CaseReport;
using data_parallel::Row;
using data_parallel::Session;
using data_parallel::Trained;
using data_parallel::TrainedStep;
using data_parallel::Turn;
using data_parallel::Unit;

namespace {

constexpr int kEvery = 4;
constexpr int kSaveSteps = 3 * kEvery + 1;  // of a run: three saves, and one when it has ended

// The waiting that a save causes is in the steps after it, up to the next save.
std::vector<double> stalls_of(const std::vector<TrainedStep>& steps) {
  std::vector<double> stalls;
  for (const TrainedStep& step : steps) {
    const bool is_first = (step.step - 1) % kEvery == 0 && step.step > 1;
    if (is_first) stalls.push_back(0);
    if (!stalls.empty()) stalls.back() += step.stalled_seconds;
  }
  std::ranges::sort(stalls);
  return stalls;
}

Row row_of_saves(const Turn& turn) {
  Row row = data_parallel::row_of(turn);
  if (!row.problem.empty()) return row;
  const std::vector<double> stalls = stalls_of(turn.steps);
  double all = 0;
  std::vector<double> background;
  for (const TrainedStep& step : turn.steps) {
    all += step.seconds + step.stalled_seconds;
    if (step.background_seconds > 0) background.push_back(step.background_seconds);
  }
  std::ranges::sort(background);
  if (!stalls.empty() && stalls.back() > 0) {
    row.numbers.emplace_back("stall_s", quantile(stalls, 0.5));
  }
  if (!background.empty()) row.numbers.emplace_back("background_s", quantile(background, 0.5));
  if (!turn.steps.empty()) {
    row.numbers.emplace_back("with_all_s", all / static_cast<double>(turn.steps.size()));
  }
  return row;
}

}  // namespace

CaseReport run_saves(Session& session) {
  std::vector<std::string> model = session.timed_model(8, 512);
  model.push_back(fmt::format("train.steps={}", session.steps(kSaveSteps)));
  model.push_back("parallel.zero=3");
  CaseReport report{.name = "saves",
                    .what = fmt::format("{}, stage 3, a checkpoint every {} of them",
                                        steps_in_words(session, model), kEvery),
                    .columns = {{"step_s", "step", Unit::kSeconds},
                                {"stall_s", "stall of a save", Unit::kSeconds},
                                {"background_s", "beside steps", Unit::kSeconds},
                                {"with_all_s", "step, sharded saves", Unit::kSeconds}}};
  const std::string beside = "written during steps";
  const std::string between = "written between steps";
  const int ranks = session.bench().ranks;
  const auto turn = [&](const std::string& name, int every, bool overlap) {
    return session.turn(report.name, name,
                        {Session::with(model, {fmt::format("checkpoint.every={}", every),
                                               fmt::format("checkpoint.async_save={}", overlap)}),
                         ranks});
  };
  std::vector<Turn> turns{turn("no saves", 0, true), turn(between, kEvery, false),
                          turn(beside, kEvery, true)};
  session.by_turns(turns);
  for (const Turn& one : turns) report.rows.push_back(row_of_saves(one));
  report.bars.push_back({.claim = "stall of a save " + beside + " / " + between,
                         .side = Bar::Side::kAtMost,
                         .bound = 0.05,
                         .value = report.ratio(beside, between, "stall_s"),
                         .why_not = "a run failed"});
  return report;
}

}  // namespace lockstep::bench::zero
