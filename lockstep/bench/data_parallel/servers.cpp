#include <fmt/format.h>

#include "lockstep/base/link_emulation.h"
#include "lockstep/base/text.h"
#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench::data_parallel {
namespace {

// On the link two servers keep up with backward, and what a step with one waits for is half
// compute. So the gain of the second is shown on a link of half the rate, too, on which the
// servers' cards are what a step waits for; the bar is on the link.
constexpr double kSlower = 2;

std::string server_setting(int servers, std::string_view schedule, bool slower = false) {
  return fmt::format("{}, {}{}", counted(static_cast<std::size_t>(servers), "server"), schedule,
                     slower ? ", half the rate" : "");
}

std::string slower_link(const Link& link) {
  LinkEmulation slower = parse_link_emulation(link.emulate);
  slower.bytes_per_second /= kSlower;
  return to_text(slower);
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
    const auto add = [&](int servers, const char* schedule, bool slower = false) {
      turns.push_back(session.turn(
          report.name, server_setting(servers, schedule, slower),
          {Session::with(session.linked_model(),
                         {"comm.emulate=" + (slower ? slower_link(link) : link.emulate),
                          "parallel.strategy=parameter_server", "parallel.consistency=bsp",
                          "parallel.server_place=beside", "optimizer.clip=0",
                          fmt::format("parallel.servers={}", servers),
                          fmt::format("parallel.schedule={}", schedule)}),
           2}));
    };
    for (const char* schedule : {"fifo", "wfbp", "priority"}) add(2, schedule);
    add(1, "priority");
    for (const int servers : {2, 1}) add(servers, "priority", true);
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
