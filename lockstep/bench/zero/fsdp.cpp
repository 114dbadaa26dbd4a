#include <optional>
#include <string_view>

#include "lockstep/bench/data_parallel/peer.h"
#include "lockstep/bench/zero/cases.h"

namespace lockstep::bench::zero {

using data_parallel::Bar;
using data_parallel::CaseReport;
using data_parallel::PeerWay;
using data_parallel::Session;
using data_parallel::Turn;

namespace {

constexpr double kMemoryBar = 0.6;
constexpr double kSpeedBar = 1.8;

const std::vector<PeerWay>& fsdp_ways() {
  constexpr std::string_view kScript = "fsdp_pytorch.py";
  static const std::vector<PeerWay> kWays{
      {"pytorch-fsdp2 eager", kScript, {"--mode", "eager", "--reduce", "f32"}},
      {"pytorch-fsdp2 eager, reduced in bf16", kScript, {"--mode", "eager", "--reduce", "bf16"}},
      {"pytorch-fsdp2 compile", kScript, {"--mode", "compile", "--reduce", "f32"}}};
  return kWays;
}

}  // namespace

CaseReport run_fsdp(Session& session) {
  const std::vector<std::string> model = session.timed_model(8, 512);
  CaseReport report{
      .name = "fsdp", .what = steps_in_words(session, model), .columns = columns_with_memory()};
  report.columns.insert(report.columns.begin() + 2,
                        {"peak_pss_bytes", "PSS of a rank", data_parallel::Unit::kBytes});
  const std::string ours = stage_name(3);
  std::vector<Turn> turns{turn_of_stage(session, report.name, 3, model)};
  if (session.bench().peers) {
    add_peers(session, report.name, Session::options_of(model), fsdp_ways(), turns);
  }
  session.by_turns(turns);
  session.weigh(turns);
  for (const Turn& turn : turns) report.rows.push_back(row_with_memory(turn));

  const bool peers = session.bench().peers;
  const char* why_not = peers ? "no peer ran" : "needs --peers";
  const bool weighed = report.number(ours, "peak_pss_bytes").has_value();
  Bar memory{.claim = "PSS of a rank of " + ours + " / FSDP2 with its least",
             .side = Bar::Side::kAtMost,
             .bound = kMemoryBar,
             .value = std::nullopt,
             .why_not = peers && !weighed ? "the kernel did not report it" : why_not};
  Bar speed{.claim = "tokens/s of " + ours + " / FSDP2 at its best",
            .side = Bar::Side::kAtLeast,
            .bound = kSpeedBar,
            .value = std::nullopt,
            .why_not = why_not};
  for (const PeerWay& way : fsdp_ways()) {
    const auto more = report.ratio(ours, way.name, "peak_pss_bytes");
    if (more && (!memory.value || *more > *memory.value)) memory.value = more;
    const auto faster = report.ratio(ours, way.name, "tokens_per_s");
    if (faster && (!speed.value || *faster < *speed.value)) speed.value = faster;
  }
  report.bars.push_back(std::move(memory));
  report.bars.push_back(std::move(speed));
  return report;
}

}  // namespace lockstep::bench::zero
