#include <fmt/format.h>

#include <algorithm>

#include "lockstep/bench/zero/cases.h"
#include "lockstep/plan/memory.h"

namespace lockstep::bench::zero {

using data_parallel::Bar;
using data_parallel::CaseReport;
using data_parallel::Column;
using data_parallel::Row;
using data_parallel::Session;
using data_parallel::Turn;
using data_parallel::Unit;

std::string steps_in_words(const Session& session, const std::vector<std::string>& model) {
  const train::RunOptions options = Session::options_of(model);
  return fmt::format("{} ranks of 1 thread, steps of {} x {} tokens, {}", session.bench().ranks,
                     options.train.batch.sequences, options.train.batch.sequence,
                     plan::name(options.train.precision));
}

std::string stage_name(int stage) {
  return stage == 0 ? "DDP" : fmt::format("ZeRO, stage {}", stage);
}

Turn turn_of_stage(Session& session, std::string_view name, int stage,
                   const std::vector<std::string>& model) {
  return session.turn(
      name, stage_name(stage),
      {Session::with(model, {fmt::format("parallel.zero={}", stage)}), session.bench().ranks});
}

std::vector<Column> columns_with_memory() {
  std::vector<Column> columns = data_parallel::timed_columns();
  columns.insert(columns.begin() + 2, {"peak_bytes", "RSS of a rank", Unit::kBytes});
  return columns;
}

Row row_with_memory(const Turn& turn) {
  Row row = data_parallel::row_of(turn);
  double most = 0;
  for (const auto& step : turn.steps) most = std::max(most, step.memory_bytes);
  if (most > 0) row.numbers.emplace_back("peak_bytes", most);
  if (turn.memory.samples > 0) {
    row.numbers.emplace_back("peak_pss_bytes", static_cast<double>(turn.memory.fullest_bytes));
    row.numbers.emplace_back("all_pss_bytes", static_cast<double>(turn.memory.all_bytes));
    row.numbers.emplace_back("pss_samples", static_cast<double>(turn.memory.samples));
  }
  return row;
}

CaseReport run_stages(Session& session) {
  const std::vector<std::string> model = session.timed_model(8, 512);
  CaseReport report{
      .name = "stages", .what = steps_in_words(session, model), .columns = columns_with_memory()};
  std::vector<Turn> turns;
  for (int stage = 0; stage < plan::kZeroStages; ++stage) {
    turns.push_back(turn_of_stage(session, report.name, stage, model));
  }
  session.by_turns(turns);
  for (const Turn& turn : turns) report.rows.push_back(row_with_memory(turn));
  report.bars.push_back({.claim = "tokens/s of ZeRO, stage 3 / DDP",
                         .side = Bar::Side::kAtLeast,
                         .bound = 0.85,
                         .value = report.ratio(stage_name(3), stage_name(0), "tokens_per_s"),
                         .why_not = "a run failed"});
  return report;
}

}  // namespace lockstep::bench::zero
