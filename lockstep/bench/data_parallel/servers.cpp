#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench::data_parallel {
namespace {

std::string server_setting(int servers, std::string_view schedule) {
  return fmt::format("{}, {}", counted(static_cast<std::size_t>(servers), "server"), schedule);
}

}  // namespace

// Without clipping: with it nobody may update before all gradients have come, whatever the order.
CaseReport run_servers(Session& session) {
  CaseReport report{.name = "servers", .columns = timed_columns()};
  const Link& link = session.link();
  if (!link.problem.empty()) {
    report.what = "not run";
    report.rows.push_back({.setting = "the link", .problem = link.problem});
  } else {
    report.what =
        fmt::format("2 workers and parameter servers on links of {} ({})", link.emulate, link.how);
    std::vector<Turn> turns;
    const auto add = [&](int servers, const char* schedule) {
      turns.push_back(session.turn(
          report.name, server_setting(servers, schedule),
          {Session::with(session.linked_model(),
                         {"comm.emulate=" + link.emulate, "parallel.strategy=parameter_server",
                          "parallel.consistency=bsp", "parallel.server_place=beside",
                          "optimizer.clip=0", fmt::format("parallel.servers={}", servers),
                          fmt::format("parallel.schedule={}", schedule)}),
           2}));
    };
    for (const char* schedule : {"fifo", "wfbp", "priority"}) add(2, schedule);
    add(1, "priority");
    session.by_turns(turns);
    for (const Turn& turn : turns) report.rows.push_back(row_of(turn));
  }
  const auto bar = [&](const std::string& fast, const std::string& slow, double bound) {
    report.bars.push_back({.claim = fmt::format("steps/s of {} / {}", fast, slow),
                           .side = Bar::Side::kAtLeast,
                           .bound = bound,
                           .value = report.ratio(fast, slow, "tokens_per_s"),
                           .why_not = "a run failed"});
  };
  bar(server_setting(2, "priority"), server_setting(2, "fifo"), 1.25);
  bar(server_setting(2, "priority"), server_setting(1, "priority"), 1.6);
  return report;
}

}  // namespace lockstep::bench::data_parallel
