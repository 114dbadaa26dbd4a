#include <fmt/format.h>

#include <algorithm>

#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr const char* kFastLink = "no emulation";
constexpr const char* kWith = "overlap";
constexpr const char* kWithout = "no overlap";

// The least that a step could take: computing without a slow link, or communication with nothing
// beside it.
std::optional<double> least_step(const CaseReport& report) {
  const auto compute = report.number(kFastLink, "compute_s");
  const auto communication = report.number(kWithout, "communication_s");
  if (!compute || !communication) return std::nullopt;
  return std::max(*compute, *communication);
}

Bar overlap_bar(const CaseReport& report, const char* setting, Bar::Side side, double bound) {
  Bar bar{.claim = fmt::format("step / max(compute, communication), {}", setting),
          .side = side,
          .bound = bound,
          .value = std::nullopt,
          .why_not = "a run failed, or did not record compute and communication"};
  const auto step = report.number(setting, "step_s");
  const auto least = least_step(report);
  if (step && least && *least > 0) bar.value = *step / *least;
  return bar;
}

}  // namespace

CaseReport run_overlap(Session& session) {
  CaseReport report{.name = "overlap", .columns = timed_columns()};
  const Link& link = session.link();
  if (!link.problem.empty()) {
    report.what = "not run";
    report.rows.push_back({.setting = "the link", .problem = link.problem});
  } else {
    report.what = fmt::format("2 ranks on links of {} ({})", link.emulate, link.how);
    const auto model = session.linked_model();
    const std::string emulate = "comm.emulate=" + link.emulate;
    std::vector<Turn> turns{
        session.turn(report.name, kFastLink, {model, 2}),
        session.turn(report.name, kWith,
                     {Session::with(model, {emulate, "parallel.overlap=true"}), 2}),
        session.turn(report.name, kWithout,
                     {Session::with(model, {emulate, "parallel.overlap=false"}), 2})};
    session.by_turns(turns);
    for (const Turn& turn : turns) report.rows.push_back(row_of(turn));
  }
  report.bars = {overlap_bar(report, kWith, Bar::Side::kAtMost, 1.2),
                 overlap_bar(report, kWithout, Bar::Side::kAtLeast, 1.5)};
  return report;
}

}  // namespace lockstep::bench::data_parallel
