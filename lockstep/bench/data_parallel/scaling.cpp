#include <fmt/format.h>

#include "lockstep/base/text/text.h"
#include "lockstep/bench/data_parallel/cases.h"
#include "lockstep/bench/data_parallel/peer.h"

namespace lockstep::bench::data_parallel {

CaseReport run_scaling(Session& session) {
  const int ranks = session.bench().ranks;
  const std::vector<std::string> model = session.timed_model(8, 512);
  const train::RunOptions options = Session::options_of(model);
  const std::string threads = counted(static_cast<std::size_t>(ranks), "thread");
  const std::string alone = "1 rank, " + threads;
  const std::string together = fmt::format("{} ranks, 1 thread each", ranks);
  CaseReport report{
      .name = "scaling",
      .what = fmt::format("steps of {} x {} tokens, {}", options.train.batch.sequences,
                          options.train.batch.sequence, plan::name(options.train.precision)),
      .columns = timed_columns()};
  std::vector<Turn> turns{
      session.turn(report.name, alone,
                   {Session::with(model, {fmt::format("train.threads={}", ranks)}), 1}),
      session.turn(report.name, together, {Session::with(model, {"train.threads=1"}), ranks})};
  if (session.bench().peers) add_peers(session, report.name, options, ddp_ways(), turns);
  session.by_turns(turns);
  for (const Turn& turn : turns) report.rows.push_back(row_of(turn));

  report.bars.push_back({.claim = "tokens/s of " + together + " / " + alone,
                         .side = Bar::Side::kAtLeast,
                         .bound = 0.95,
                         .value = report.ratio(together, alone, "tokens_per_s"),
                         .why_not = "a run failed"});
  Bar beside{.claim = "tokens/s of " + together + " / PyTorch's DDP at its best",
             .side = Bar::Side::kAtLeast,
             .bound = 1.8,
             .value = std::nullopt,
             .why_not = session.bench().peers ? "no peer ran" : "needs --peers"};
  for (std::size_t i = 2; i < turns.size(); ++i) {
    const auto against = report.ratio(together, turns[i].setting, "tokens_per_s");
    if (against && (!beside.value || *against < *beside.value)) beside.value = against;
  }
  report.bars.push_back(std::move(beside));
  return report;
}

}  // namespace lockstep::bench::data_parallel
