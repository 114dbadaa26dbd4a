#include <fmt/format.h>

#include "lockstep/bench/zero/cases.h"

namespace lockstep::bench::zero {

using data_parallel::Bar;
using data_parallel::CaseReport;
using data_parallel::Session;
using data_parallel::Turn;

CaseReport run_mirror(Session& session) {
  const std::vector<std::string> model =
      Session::with(session.timed_model(8, 512), {"parallel.zero=2"});
  CaseReport report{.name = "mirror",
                    .what = steps_in_words(session, model) + ", stage 2",
                    .columns = columns_with_memory()};
  const std::string without = "no mirror";
  const std::string with = "survive.mirror";
  const auto turn = [&](const std::string& setting, bool mirrors) {
    return session.turn(
        report.name, setting,
        {Session::with(model, {fmt::format("survive.mirror={}", mirrors)}), session.bench().ranks});
  };
  std::vector<Turn> turns{turn(without, false), turn(with, true)};
  session.by_turns(turns);
  for (const Turn& one : turns) report.rows.push_back(row_with_memory(one));
  report.bars.push_back({.claim = "step with a mirror of every shard / without",
                         .side = Bar::Side::kAtMost,
                         .bound = 1.03,
                         .value = report.ratio(with, without, "step_s"),
                         .why_not = "a run failed"});
  return report;
}

}  // namespace lockstep::bench::zero
